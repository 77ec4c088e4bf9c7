"""The ASGI application: all routes, and problem documents for every error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from jobyard.errors import NotFound
from jobyard.server import openapi
from jobyard.server.dependencies import Dependencies
from jobyard.server.dispatch import INTERNAL_ERROR, Application, PathDispatcher
from jobyard.server.parsing import raw_path
from jobyard.server.problems import problem
from jobyard.server.route import Route, Routes

Lifespan = Callable[[], AbstractAsyncContextManager[None]]


def create_app(dependencies: Dependencies, routes: Sequence[Routes], lifespan: Lifespan | None = None) -> Starlette:
    @asynccontextmanager
    async def app_lifespan(_: Starlette) -> AsyncIterator[None]:
        if lifespan is None:
            yield
            return
        async with lifespan():
            yield

    app = Application(lifespan=app_lifespan)
    app.router.redirect_slashes = False
    all_routes = [route for module in routes for route in module.all]
    dispatchers = {path: PathDispatcher(dependencies, same) for path, same in by_path(all_routes).items()}
    app.router.routes.extend(StarletteRoute(path, dispatcher) for path, dispatcher in dispatchers.items())
    app.fixed_paths = {path: dispatcher for path, dispatcher in dispatchers.items() if "{" not in path}
    app.state.routes = all_routes
    app.state.metrics = dependencies.exporter.metrics
    url = (dependencies.settings.public_origin or "") + dependencies.settings.root_path or "/"
    app.state.openapi = cache(lambda: openapi.document(all_routes, url))
    app.add_exception_handler(HTTPException, on_http_exception)
    app.add_exception_handler(Exception, on_exception)
    return app


def by_path(routes: Sequence[Route]) -> dict[str, list[Route]]:
    """Routes by path. Fixed paths come first, so that they win over a path with a parameter in the same place."""
    found: dict[str, list[Route]] = {}
    for route in sorted(routes, key=lambda route: "{" in route.path):
        found.setdefault(route.path, []).append(route)
    return found


async def on_http_exception(request: Request, error: Any) -> Response:
    request.app.state.metrics.requested("other", "unmatched", error.status_code, 0.0)
    if error.status_code == 404:
        path = raw_path(request)
        return problem(404, NotFound.code, f"No route matches {path}. See /docs.", instance=path)
    return problem(
        error.status_code, "http", str(error.detail), instance=raw_path(request), headers=dict(error.headers or {})
    )


async def on_exception(request: Request, error: Exception) -> Response:
    """The traceback goes to the log only: the response must not leak internals."""
    return problem(500, "internal", INTERNAL_ERROR, instance=raw_path(request))
