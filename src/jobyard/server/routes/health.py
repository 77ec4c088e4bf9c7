"""Health for machines and for people: livez, readyz and both together."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as PlainRoute

from jobyard.api.schemas.events import HealthView
from jobyard.api.schemas.jobs import RequestSchema
from jobyard.errors import JobyardError
from jobyard.operations.health import Health
from jobyard.server.http_protocol import ConnectionLimits
from jobyard.server.middleware import SecurityMiddleware
from jobyard.server.problems import from_error
from jobyard.server.prometheus import MetricsExporter
from jobyard.server.rate_limit import uvicorn_options
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("health")
NOT_READY = ((503, "It cannot work now; `reason` says why."),)


@ROUTES.add("GET", "/livez", None, "Whether the process turns", answer=HealthView)
async def livez(context: RequestContext) -> Response:
    return rendered(context.dependencies.health.live())


class ReadyQuery(RequestSchema, frozen=True):
    verbose: str | None = None  # given, with whatever value: tell each check


@ROUTES.add(
    "GET",
    "/readyz",
    None,
    "Whether it can work now; and if not, why",
    query=ReadyQuery,
    answer=HealthView,
    also=NOT_READY,
    refusals=(422,),
)
async def readyz(context: RequestContext) -> Response:
    return rendered(brief(await context.dependencies.health.ready(), verbose=context.query.verbose is not None))


@ROUTES.add("GET", "/health", None, "Both, with every check, for people", answer=HealthView, also=NOT_READY)
async def health(context: RequestContext) -> Response:
    return rendered(await context.dependencies.health.ready())


def brief(view: HealthView, *, verbose: bool) -> HealthView:
    return view if verbose else HealthView(status=view.status, reason=view.reason)


def rendered(view: HealthView) -> Response:
    text = msgspec.json.format(msgspec.json.encode(view), indent=2) + b"\n"
    return Response(text, 200 if view.status == "ok" else 503, media_type="application/json")


def health_app(health: Health, scrape: MetricsExporter) -> Starlette:
    """For a worker that serves nothing else. It has no authenticator: bind it where only your own machines reach it."""

    async def live(request: Request) -> Response:
        return rendered(health.live())

    async def ready(request: Request) -> Response:
        return rendered(brief(await health.ready(), verbose="verbose" in request.query_params))

    async def both(request: Request) -> Response:
        return rendered(await health.ready())

    async def metrics(request: Request) -> Response:
        try:
            return await scrape.answer()
        except JobyardError as error:
            return from_error(error)

    pages = {"/livez": live, "/readyz": ready, "/health": both, "/metrics": metrics}
    return Starlette(routes=[PlainRoute(path, page) for path, page in pages.items()])


class UvicornServer(uvicorn.Server):
    """Leaves the signals to the worker that it serves beside: it ends when that says so."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving_health(health: Health, scrape: MetricsExporter, host: str, port: int) -> AsyncIterator[int]:
    """Beside a worker, in its own event loop: one that is blocked does not answer. Answers the port."""
    options = uvicorn_options(ConnectionLimits(max_connections=100))
    config = uvicorn.Config(SecurityMiddleware(health_app(health, scrape)), lifespan="off", **options)
    listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    server = UvicornServer(config)
    task = asyncio.ensure_future(server.serve([listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await task
        listener.close()
