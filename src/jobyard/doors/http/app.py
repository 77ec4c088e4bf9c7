"""The application: every route behind one entrance that knows who asks, what for, and in which shape."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from jobyard.doors.http import openapi
from jobyard.doors.http.door import Door
from jobyard.doors.http.parse import body_of, query_of
from jobyard.doors.http.problems import HttpError, from_error, from_http_error, problem
from jobyard.doors.http.route import Ask, Route, Routes
from jobyard.errors import JobyardError
from jobyard.service.access import Principal, Role

JSON = "application/json"
NOBODY = Principal(id="", name="", role=Role.VIEWER)
UNKNOWN = {"WWW-Authenticate": "Bearer"}

Endpoint = Callable[[Request], Awaitable[Response]]
Lifespan = Callable[[], AbstractAsyncContextManager[None]]


def create_app(door: Door, routes: Sequence[Routes], lifespan: Lifespan | None = None) -> FastAPI:
    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        if lifespan is None:
            yield
            return
        async with lifespan():
            yield

    app = FastAPI(title="jobyard", version=openapi.VERSION, docs_url=None, redoc_url=None, lifespan=life)
    every = [route for some in routes for route in some.all]
    for route in every:
        app.add_api_route(
            route.path,
            entrance(door, route),
            methods=[route.method],
            status_code=route.status,
            summary=route.summary,
            tags=[route.tag],
            response_model=None,
            operation_id=openapi.operation_id(route),
            openapi_extra=openapi.describe(route),
        )
    openapi.complete(app, every)
    app.state.routes = every

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        detail = f"There is nothing at {request.url.path}." if error.status_code == 404 else str(error.detail)
        code = {404: "no_such_page", 405: "no_such_method"}.get(error.status_code, "http")
        return problem(error.status_code, code, detail, headers=dict(error.headers or {}))

    return app


def entrance(door: Door, route: Route) -> Endpoint:
    """One way in for all: who asks, may they, is what they send in shape; then the handler; errors become problems."""
    decoder = None if route.body is None else msgspec.json.Decoder(route.body)
    encode = msgspec.json.Encoder().encode
    permission, handler, most = route.permission, route.handler, door.settings.max_body_bytes

    async def enter(request: Request) -> Response:
        try:
            principal = NOBODY
            if permission is not None:
                found = await door.gate.let_in(request)
                if found is None:
                    return problem(401, "no_token", "Send a token: Authorization: Bearer jy_….", headers=UNKNOWN)
                if not found.may(permission):
                    return problem(403, "not_allowed", f"The role {found.role} does not allow this.")
                principal = found
            query: Any = None if route.query is None else query_of(request.query_params, route.query)
            body: Any = None if decoder is None else await body_of(request, decoder, most)
            answer = await handler(Ask(door, request, principal, request.path_params, query, body))
        except HttpError as error:
            return from_http_error(error, request.url.path)
        except JobyardError as error:
            return from_error(error, request.url.path)
        except ClientDisconnect:
            return Response(status_code=499)
        if isinstance(answer, Response):
            return answer
        if answer is None:
            return Response(status_code=204)
        return Response(encode(answer), route.status, media_type=JSON)

    return enter
