"""The application: every route behind one entrance, and problem documents also where there is none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Path

from jobyard.server import openapi
from jobyard.server.dependencies import Dependencies
from jobyard.server.dispatch import BROKEN, Application, PathDispatcher, sent_path
from jobyard.server.problems import problem
from jobyard.server.route import Route, Routes

Lifespan = Callable[[], AbstractAsyncContextManager[None]]


def create_app(dependencies: Dependencies, routes: Sequence[Routes], lifespan: Lifespan | None = None) -> FastAPI:
    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        if lifespan is None:
            yield
            return
        async with lifespan():
            yield

    app = Application(title="jobyard", version=openapi.VERSION, openapi_url=None, redirect_slashes=False, lifespan=life)
    every = [route for some in routes for route in some.all]
    places = {path: PathDispatcher(dependencies, here) for path, here in by_path(every).items()}
    # Not as FastAPI's own routes: those look for dependencies that ours do not have, and it shows.
    app.router.routes.extend(Path(path, place) for path, place in places.items())
    app.places = {path: place for path, place in places.items() if "{" not in path}
    app.state.routes = every
    app.openapi = cache(lambda: openapi.document(every))  # type: ignore[method-assign]  # as FastAPI documents it
    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(Exception, broken)
    return app


def by_path(routes: Sequence[Route]) -> dict[str, list[Route]]:
    """Fixed paths first: a fixed word goes before a name in the same place, and the hot route is found at once."""
    found: dict[str, list[Route]] = {}
    for route in sorted(routes, key=lambda route: "{" in route.path):
        found.setdefault(route.path, []).append(route)
    return found


async def refused(request: Request, error: Any) -> Response:
    if error.status_code == 404:
        return problem(404, "no_such_page", f"There is nothing at {sent_path(request)}.")
    return problem(error.status_code, "http", str(error.detail), headers=dict(error.headers or {}))


async def broken(request: Request, error: Exception) -> Response:
    """The server's log has the traceback; the caller is not told our insides."""
    return problem(500, "internal", BROKEN, instance=sent_path(request))
