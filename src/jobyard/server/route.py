"""A route is data: its path, who may use it, what goes in and what comes out; OpenAPI and the role tests read it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from jobyard.domain.access import Permission, Principal

if TYPE_CHECKING:
    from starlette.requests import Request

    from jobyard.server.dependencies import Dependencies


class RequestContext:
    """One request, let in and parsed."""

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

    async def audit(self, action: str, target: str = "", **details: Any) -> None:
        """Record a change in the audit log; empty details are left out."""
        given = {name: value for name, value in details.items() if value not in (None, "", ())}
        await self.dependencies.audit.record(self.principal, action, target, given)


# Answers a value that msgspec can write, or a Response of its own.
Handler: TypeAlias = Callable[[RequestContext], Awaitable[Any]]


class Route(NamedTuple):
    method: str
    path: str
    permission: Permission | None  # None: open to everybody
    handler: Handler
    summary: str
    tag: str
    status: int = 200
    query: type[msgspec.Struct] | None = None
    body: Any = None  # a type that msgspec can decode
    answer: Any = None  # a type that msgspec can write
    headers: tuple[tuple[str, str], ...] = ()  # request headers with a meaning here: name, what it does
    stays_open: bool = False  # an answer without end, such as a stream of events
    media_type: str = "application/json"  # another: the answer is text of that kind
    also: tuple[tuple[int, str], ...] = ()  # other statuses of the same kind of answer, and what they mean
    refusals: tuple[int, ...] = ()  # problems that neither its permission nor its types tell of
    form: tuple[str, ...] = ()  # the fields of a form that a browser sends
    names_fields: bool = False  # what is no JSON because of one value, such as NaN, is refused with its field


class Routes:
    """Filled by decorators, one object per file; the app puts them together."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.all: list[Route] = []

    def add(
        self,
        method: str,
        path: str,
        permission: Permission | None,
        summary: str,
        *,
        status: int = 200,
        query: type[msgspec.Struct] | None = None,
        body: Any = None,
        answer: Any = None,
        headers: tuple[tuple[str, str], ...] = (),
        stays_open: bool = False,
        media_type: str = "application/json",
        also: tuple[tuple[int, str], ...] = (),
        refusals: tuple[int, ...] = (),
        form: tuple[str, ...] = (),
        names_fields: bool = False,
    ) -> Callable[[Handler], Handler]:
        def decorate(handler: Handler) -> Handler:
            told = (summary, self.tag, status, query, body, answer, headers, stays_open, media_type)
            self.all.append(Route(method, path, permission, handler, *told, also, refusals, form, names_fields))
            return handler

        return decorate
