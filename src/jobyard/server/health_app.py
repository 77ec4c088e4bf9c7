"""Health and metrics endpoints of a process without the API, such as a worker."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from jobyard.errors import JobyardError
from jobyard.operations.health import Health
from jobyard.server.http_protocol import ConnectionLimits, UvicornServer, uvicorn_options
from jobyard.server.middleware import SecurityMiddleware
from jobyard.server.problems import from_error
from jobyard.server.prometheus import MetricsExporter
from jobyard.server.routes.health import health_response, summary


def health_app(health: Health, exporter: MetricsExporter) -> Starlette:
    """No authentication: bind it to an address that only monitoring can reach."""

    async def livez(request: Request) -> Response:
        return health_response(health.live())

    async def readyz(request: Request) -> Response:
        return health_response(summary(await health.ready(), verbose="verbose" in request.query_params))

    async def all_checks(request: Request) -> Response:
        return health_response(await health.ready())

    async def metrics(request: Request) -> Response:
        try:
            return await exporter.response()
        except JobyardError as error:
            return from_error(error)

    endpoints = {"/livez": livez, "/readyz": readyz, "/health": all_checks, "/metrics": metrics}
    return Starlette(routes=[StarletteRoute(path, endpoint) for path, endpoint in endpoints.items()])


@asynccontextmanager
async def serving_health(health: Health, exporter: MetricsExporter, host: str, port: int) -> AsyncIterator[int]:
    """Serve from the event loop of the process, so that a blocked loop fails the probes. Yields the port."""
    options = uvicorn_options(ConnectionLimits(max_connections=100))
    config = uvicorn.Config(SecurityMiddleware(health_app(health, exporter)), lifespan="off", **options)
    listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    server = UvicornServer(config)
    task = asyncio.ensure_future(server.serve([listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await task
        listener.close()
