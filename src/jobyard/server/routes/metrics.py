"""The metrics of this server, for those who may see everything."""

from __future__ import annotations

from starlette.responses import Response

from jobyard.domain.access import Permission
from jobyard.server.authorization import is_restricted
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("health")


@ROUTES.add("GET", "/metrics", Permission.READ, "Metrics in Prometheus' text format", media_type="text/plain")
async def read_metrics(context: RequestContext) -> Response:
    if is_restricted(context.principal):
        raise HttpError(403, "out_of_scope", "A token that is confined cannot read the metrics of everything.")
    return await context.dependencies.exporter.answer()
