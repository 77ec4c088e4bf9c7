"""Request dispatch: authenticate, authorize, parse, call the handler, and turn errors into problem documents."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from jobyard.api.schemas.access import TokenCreated
from jobyard.domain.access import Principal, Role
from jobyard.errors import JobyardError, StoreError
from jobyard.server.dependencies import Dependencies
from jobyard.server.idempotency import idempotency_key, respond_once
from jobyard.server.parsing import parse_body, parse_query, raw_path, require_no_fields
from jobyard.server.problems import WWW_AUTHENTICATE, HttpError, from_error, from_http_error, invalid_token, problem
from jobyard.server.route import RequestContext, Route

log = logging.getLogger("jobyard.http")

# The key in the scope of the id of the request.
REQUEST_ID = "jobyard.request_id"

STORE_UNAVAILABLE = "The store is not available. Retry later."
SEND_TOKEN = "Send Authorization: Bearer jy_…."  # noqa: S105  # an instruction
INTERNAL_ERROR = "An unexpected error occurred. See the log of the server."
# Set on the scope of a request once it is authenticated.
AUTHENTICATED = "jobyard.authenticated"
ANONYMOUS = Principal(id="", name="", role=Role.VIEWER)


class RouteDispatcher:
    """Handles the requests of one route."""

    def __init__(self, dependencies: Dependencies, route: Route) -> None:
        self._dependencies = dependencies
        self._route = route
        self._decoder = None if route.body is None else msgspec.json.Decoder(route.body)
        self._encode = msgspec.json.Encoder().encode
        self._repeats_response = route.repeats_response
        # Outside the API unknown parameters are ignored: probes and browsers add their own.
        self._is_strict = route.is_api
        self._refuses_body = self._is_strict and route.body is None and route.method != "GET"

    async def respond(self, request: Request) -> Response:
        try:
            return await self._handle(request)
        except HttpError as error:
            return from_http_error(error, raw_path(request))
        except StoreError as error:
            if request.scope.get(AUTHENTICATED):
                return from_error(error, raw_path(request))
            # The message names the address of the store, which an unauthenticated caller must not learn.
            log.warning("%s %s failed: %s", request.method, raw_path(request), error)
            headers = {"Retry-After": "1"}
            return problem(503, error.code, STORE_UNAVAILABLE, instance=raw_path(request), headers=headers)
        except JobyardError as error:
            return from_error(error, raw_path(request))
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:
            # The traceback goes to the log only: the response must not leak internals.
            number = request.scope.get(REQUEST_ID, b"").decode()
            log.exception("%s %s failed unexpectedly, request %s", request.method, raw_path(request), number)
            return problem(500, "internal", INTERNAL_ERROR, instance=raw_path(request))

    async def _handle(self, request: Request) -> Response:
        dependencies, route, principal = self._dependencies, self._route, ANONYMOUS
        if route.permission is not None:
            found = await dependencies.authenticator.authenticate(request)
            if found is None:
                raise unauthorized(request)
            if not found.may(route.permission):
                raise HttpError(
                    403, "not_allowed", f"The role {found.role} does not have the permission {route.permission}."
                )
            principal = found
            request.scope[AUTHENTICATED] = True
        query: Any = None
        query_string: bytes = request.scope["query_string"]
        if route.query is not None or (query_string and self._is_strict):
            query = parse_query(query_string, route.query)
        body: Any = None
        max_bytes = dependencies.settings.max_body_bytes
        if self._decoder is not None:
            body = await parse_body(request, self._decoder, max_bytes, locates_bad_json=route.locates_bad_json)
        elif self._refuses_body:
            await require_no_fields(request, max_bytes)
        context = RequestContext(dependencies, request, principal, path_parameters(request), query, body)
        key = idempotency_key(request) if self._repeats_response else None
        if key is None:
            return await self._respond(context)
        owner = (principal.id, route.method, raw_path(request), key)
        fingerprint = query_string + b"\n" + msgspec.json.encode(body, order="deterministic")
        respond, is_secret = partial(self._respond, context), route.response is TokenCreated
        return await respond_once(dependencies.store, owner, fingerprint, respond, is_secret=is_secret)

    async def _respond(self, context: RequestContext) -> Response:
        response = await self._route.handler(context)
        if isinstance(response, Response):
            return response
        if response is None:
            return Response(status_code=204)
        return RawJsonResponse(self._encode(response), self._route.status)


def unauthorized(request: Request) -> HttpError:
    header = request.headers.get("authorization")
    if header is None:
        return HttpError(401, "no_token", f"The request has no token. {SEND_TOKEN}", headers=WWW_AUTHENTICATE)
    if header.partition(" ")[0].lower() != "bearer":
        detail = f"The Authorization header has no Bearer scheme. {SEND_TOKEN}"
        return HttpError(401, "no_token", detail, headers=WWW_AUTHENTICATE)
    return invalid_token("The token is wrong, revoked or expired.")


# Stands for an encoded slash inside a path parameter: no name can contain this character.
SLASH = "\x1f"


def path_parameters(request: Request) -> dict[str, str]:
    """The parameters in the path, with their slashes restored."""
    names: dict[str, str] = request.path_params
    return {name: value.replace(SLASH, "/") for name, value in names.items()} if names else names


class Application(Starlette):
    """Starlette with a shortcut: fixed paths go straight to their dispatcher, past the router and its middleware.

    A slash sent as %2F belongs to a path parameter ("org/repository") and does not separate path segments.
    """

    fixed_paths: Mapping[str, PathDispatcher] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        dispatcher = self.fixed_paths.get(scope.get("path", ""))
        if dispatcher is not None and scope["type"] == "http" and not scope.get("root_path"):
            scope["app"], scope["endpoint"] = self, dispatcher
            await dispatcher(scope, receive, send)
            return
        raw: bytes = scope.get("raw_path") or b""
        if SLASH in scope.get("path", ""):
            detail = "The path contains a control character."
            await problem(422, "bad_input", detail, instance=raw.decode("latin-1"))(scope, receive, send)
            return
        if b"%" in raw:
            marked = raw.replace(b"%2F", b"%1F").replace(b"%2f", b"%1F")
            try:
                scope["path"] = unquote_to_bytes(marked).decode()
            except UnicodeDecodeError:
                response = problem(422, "bad_input", "The path is not UTF-8.", instance=raw.decode("latin-1"))
                await response(scope, receive, send)
                return
        await super().__call__(scope, receive, send)


class RawJsonResponse(Response):
    """A response from encoded JSON, without the cost of Starlette's header handling."""

    def __init__(self, body: bytes, status: int, *headers: tuple[bytes, bytes]) -> None:
        self.status_code = status
        self.background = None
        self.body = body
        length = b"%d" % len(body)
        self.raw_headers = [(b"content-type", b"application/json"), (b"content-length", length), *headers]


class PathDispatcher:
    """All methods of one path. A plain ASGI application, because the hot route passes through it."""

    def __init__(self, dependencies: Dependencies, routes: Sequence[Route]) -> None:
        self.path = routes[0].path  # as declared; spans are named after it
        self._dispatchers = {route.method: RouteDispatcher(dependencies, route) for route in routes}
        if "GET" in self._dispatchers:
            self._dispatchers.setdefault("HEAD", self._dispatchers["GET"])
        self._allow = ", ".join(sorted(self._dispatchers))
        self._requested = dependencies.exporter.metrics.requested

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        method: str = scope["method"]
        dispatcher = self._dispatchers.get(method)
        request = Request(scope, receive, send)
        if dispatcher is None:
            method = "other"  # a caller can make up any number of methods
            detail = f"Allowed methods: {self._allow}."
            headers = {"Allow": self._allow}
            response = problem(405, "no_such_method", detail, instance=raw_path(request), headers=headers)
        else:
            response = await dispatcher.respond(request)
        self._requested(method, self.path, response.status_code, perf_counter() - started)
        await response(scope, receive, send)
