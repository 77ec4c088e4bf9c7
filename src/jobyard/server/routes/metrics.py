"""Metrics of the server."""

from __future__ import annotations

from starlette.responses import Response

from jobyard.domain.access import Permission
from jobyard.server.authorization import is_restricted
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("health")


@ROUTES.add("GET", "/metrics", Permission.READ, "Metrics in the Prometheus text format", media_type="text/plain")
async def read_metrics(context: RequestContext) -> Response:
    if is_restricted(context.principal):
        raise HttpError(403, "out_of_scope", "A restricted token cannot read the metrics.")
    return await context.dependencies.exporter.response()
