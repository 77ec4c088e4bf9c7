"""One way in for all: who asks, may they, is what they send in shape; then the handler; errors become problems."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from jobyard.domain.access import Principal, Role
from jobyard.errors import JobyardError, StoreError
from jobyard.server.dependencies import Dependencies
from jobyard.server.parsing import body_of, query_of
from jobyard.server.problems import HttpError, from_error, from_http_error, problem
from jobyard.server.route import RequestContext, Route

log = logging.getLogger("jobyard.http")

AWAY = "The store is not available now."
# Set on a request once it is known who asks.
KNOWN = "jobyard.known"
BROKEN = "Something broke here; the server's log says what."
NOBODY = Principal(id="", name="", role=Role.VIEWER)
UNKNOWN = {"WWW-Authenticate": "Bearer"}


class RouteDispatcher:
    """To one route."""

    def __init__(self, dependencies: Dependencies, route: Route) -> None:
        self._dependencies = dependencies
        self._route = route
        self._decoder = None if route.body is None else msgspec.json.Decoder(route.body)
        self._encode = msgspec.json.Encoder().encode
        # Elsewhere, what is unknown is left alone: probes and browsers add words of their own.
        self._is_strict = route.path.startswith("/v1/")

    async def answer(self, request: Request) -> Response:
        try:
            return await self._enter(request)
        except HttpError as error:
            return from_http_error(error, sent_path(request))
        except StoreError as error:
            if request.scope.get(KNOWN):
                return from_error(error, sent_path(request))
            # Where the store is and what ails it is not for somebody whom nobody knows.
            log.warning("%s %s could not be answered: %s", request.method, request.url.path, error)
            return problem(503, error.code, AWAY, instance=sent_path(request), headers={"Retry-After": "1"})
        except JobyardError as error:
            return from_error(error, sent_path(request))
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:
            # The log has the traceback; the caller is not told our insides.
            log.exception("%s %s broke", request.method, request.url.path)
            return problem(500, "internal", BROKEN, instance=sent_path(request))

    async def _enter(self, request: Request) -> Response:
        dependencies, route, principal = self._dependencies, self._route, NOBODY
        if route.permission is not None:
            found = await dependencies.authenticator.authenticate(request)
            if found is None:
                return problem(401, "no_token", who_is_asking(request), headers=UNKNOWN)
            if not found.may(route.permission):
                return problem(403, "not_allowed", f"The role {found.role} does not allow this.")
            principal = found
            request.scope[KNOWN] = True
        query: Any = None
        sent: bytes = request.scope["query_string"]
        if route.query is not None or (sent and self._is_strict):
            query = query_of(sent, route.query)
        body: Any = None
        if self._decoder is not None:
            most = dependencies.settings.max_body_bytes
            body = await body_of(request, self._decoder, most, names_fields=route.names_fields)
        answer = await route.handler(RequestContext(dependencies, request, principal, names_in(request), query, body))
        if isinstance(answer, Response):
            return answer
        if answer is None:
            return Response(status_code=204)
        return RawJsonResponse(self._encode(answer), route.status)


def who_is_asking(request: Request) -> str:
    if "authorization" in request.headers:
        return "This token is not known here: it is wrong, revoked or expired."
    return "Send a token: Authorization: Bearer jy_…."


# No name can hold it, so it can stand for a slash inside one.
SLASH = "\x1f"


def sent_path(request: Request) -> str:
    """The path as it was sent: a name in it may hold what a path cannot."""
    raw: bytes = request.scope.get("raw_path") or b""
    return raw.decode("latin-1") if raw.isascii() else request.url.path


def names_in(request: Request) -> dict[str, str]:
    """The names in the path, with their own slashes."""
    names: dict[str, str] = request.path_params
    return {name: value.replace(SLASH, "/") for name, value in names.items()} if names else names


class Application(FastAPI):
    """In front of the router: a fixed path leads straight to its place, past layers that it does not need.

    And a slash that was sent as %2F belongs to a name ("org/repository"): it divides no path.
    """

    places: Mapping[str, PathDispatcher] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        place = self.places.get(scope.get("path", ""))
        if place is not None and scope["type"] == "http" and not scope.get("root_path"):
            scope["app"], scope["endpoint"] = self, place
            await place(scope, receive, send)
            return
        raw: bytes = scope.get("raw_path") or b""
        if b"%" in raw:
            marked = raw.replace(b"%2F", b"%1F").replace(b"%2f", b"%1F")
            try:
                scope["path"] = unquote_to_bytes(marked).decode()
            except UnicodeDecodeError:
                refused = problem(422, "bad_input", "The path is not UTF-8.", instance=raw.decode("latin-1"))
                await refused(scope, receive, send)
                return
        await super().__call__(scope, receive, send)


class RawJsonResponse(Response):
    """A JSON answer whose few headers are written down as they go out."""

    def __init__(self, body: bytes, status: int, *headers: tuple[bytes, bytes]) -> None:
        self.status_code = status
        self.background = None
        self.body = body
        length = b"%d" % len(body)
        self.raw_headers = [(b"content-type", b"application/json"), (b"content-length", length), *headers]


class PathDispatcher:
    """One path: an entrance for each method. A plain ASGI application, for the hot route passes here."""

    def __init__(self, dependencies: Dependencies, routes: Sequence[Route]) -> None:
        self.path = routes[0].path  # as it was declared, for whoever names what happens here
        self._entrances = {route.method: RouteDispatcher(dependencies, route) for route in routes}
        if "GET" in self._entrances:
            self._entrances.setdefault("HEAD", self._entrances["GET"])
        self._allow = ", ".join(sorted(self._entrances))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        entrance = self._entrances.get(scope["method"])
        if entrance is None:
            said = f"Here one may {self._allow}."
            response = problem(405, "no_such_method", said, headers={"Allow": self._allow})
        else:
            response = await entrance.answer(Request(scope, receive, send))
        await response(scope, receive, send)
