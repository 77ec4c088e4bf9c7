"""Routes as data: path, permission, input and output types. The OpenAPI document and the role tests read them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypedDict, Unpack

import msgspec

from jobyard.domain.access import Permission, Principal

if TYPE_CHECKING:
    from starlette.requests import Request

    from jobyard.operations.local import LocalOperations
    from jobyard.server.dependencies import Dependencies


class RequestContext:
    """One authenticated and parsed request, as a handler receives it."""

    __slots__ = ("body", "dependencies", "path", "principal", "query", "request")

    def __init__(
        self,
        dependencies: Dependencies,
        request: Request,
        principal: Principal,
        path: dict[str, str],
        query: Any,
        body: Any,
    ) -> None:
        self.dependencies = dependencies
        self.request = request
        self.principal = principal
        self.path = path
        self.query = query
        self.body = body

    @property
    def operations(self) -> LocalOperations:
        """The operations on behalf of the principal; changes are recorded in the audit log."""
        return self.dependencies.operations.as_principal(self.principal)


# Returns a value that msgspec can encode, or a Response.
Handler: TypeAlias = Callable[[RequestContext], Awaitable[Any]]


class Route(NamedTuple):
    method: str
    path: str
    permission: Permission | None  # None: no authentication
    handler: Handler
    summary: str
    tag: str
    status: int = 200
    query: type[msgspec.Struct] | None = None
    body: Any = None  # a type that msgspec can decode
    response: Any = None  # a type that msgspec can encode
    headers: tuple[tuple[str, str], ...] = ()  # request headers that matter here: name, description
    is_stream: bool = False  # a response without end, such as server-sent events
    media_type: str = "application/json"  # any other: the response is text of that type
    other_statuses: tuple[tuple[int, str], ...] = ()  # further statuses of the same response: status, meaning
    problems: tuple[int, ...] = ()  # statuses of problems that neither permission nor types imply
    form: tuple[str, ...] = ()  # fields of an HTML form
    locates_bad_json: bool = False  # a value that makes the body invalid JSON, such as NaN, gets a pointer

    @property
    def is_api(self) -> bool:
        """Whether unknown parameters are rejected."""
        return self.path.startswith(("/v1/", "/api/"))

    @property
    def repeats_response(self) -> bool:
        """Whether the dispatcher enforces an Idempotency-Key. Handlers that make jobs do it themselves."""
        is_own = any(name == "Idempotency-Key" for name, _ in self.headers)
        return self.method == "POST" and self.status in (201, 202) and self.permission is not None and not is_own


class RouteOptions(TypedDict, total=False):
    """The optional fields of Route."""

    status: int
    query: type[msgspec.Struct] | None
    body: Any
    response: Any
    headers: tuple[tuple[str, str], ...]
    is_stream: bool
    media_type: str
    other_statuses: tuple[tuple[int, str], ...]
    problems: tuple[int, ...]
    form: tuple[str, ...]
    locates_bad_json: bool


class Routes:
    """The routes of one module, added by decorators."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.all: list[Route] = []

    def add(
        self, method: str, path: str, permission: Permission | None, **options: Unpack[RouteOptions]
    ) -> Callable[[Handler], Handler]:
        """The first line of the handler's docstring is the summary of the route."""

        def decorate(handler: Handler) -> Handler:
            summary = (handler.__doc__ or "").partition("\n")[0].removesuffix(".")
            self.all.append(Route(method, path, permission, handler, summary, self.tag, **options))
            return handler

        return decorate
