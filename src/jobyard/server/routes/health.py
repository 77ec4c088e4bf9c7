"""Health: liveness, readiness, all checks in detail, and metrics."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from jobyard.api.schemas.events import HealthView
from jobyard.api.schemas.jobs import RequestSchema
from jobyard.domain.access import Permission
from jobyard.server.authorization import is_restricted
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("health")
NOT_READY = ((503, "Not ready; `reason` says why."),)


@ROUTES.add("GET", "/livez", None, response=HealthView)
async def livez(context: RequestContext) -> Response:
    """Liveness: the event loop of the process runs."""
    return health_response(context.dependencies.health.live())


class ReadyQuery(RequestSchema, frozen=True):
    verbose: str | None = None  # with any value: list each check


@ROUTES.add("GET", "/readyz", None, query=ReadyQuery, response=HealthView, other_statuses=NOT_READY, problems=(422,))
async def readyz(context: RequestContext) -> Response:
    """Readiness: whether the server can do its work, and if not, why."""
    view = await context.dependencies.health.ready()
    return health_response(summary(view, verbose=context.query.verbose is not None))


@ROUTES.add("GET", "/health", None, response=HealthView, other_statuses=NOT_READY)
async def health(context: RequestContext) -> Response:
    """Readiness with every check."""
    return health_response(await context.dependencies.health.ready())


@ROUTES.add("GET", "/metrics", Permission.READ, media_type="text/plain")
async def read_metrics(context: RequestContext) -> Response:
    """Metrics in the Prometheus text format."""
    if is_restricted(context.principal):
        raise HttpError(403, "out_of_scope", "A restricted token cannot read the metrics.")
    return await context.dependencies.exporter.response()


def summary(view: HealthView, *, verbose: bool) -> HealthView:
    return view if verbose else HealthView(status=view.status, reason=view.reason)


def health_response(view: HealthView) -> Response:
    text = msgspec.json.format(msgspec.json.encode(view), indent=2) + b"\n"
    return Response(text, 200 if view.status == "ok" else 503, media_type="application/json")
