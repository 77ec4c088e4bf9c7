"""REST requests, responses, and pages of results."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from jobyard.demo.fake_github.accounts_json import Json
from jobyard.demo.fake_github.auth import Access, Principal
from jobyard.demo.fake_github.entities import Owner, Repository
from jobyard.demo.fake_github.errors import ApiError, not_found
from jobyard.demo.fake_github.model import FakeGitHub

DEFAULT_PAGE = 30
LARGEST_PAGE = 100


@dataclass(frozen=True, kw_only=True)
class ApiRequest:
    """`path` is relative to the base of the API; names of headers are compared without regard to case."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    base_url: str | None = None


@dataclass(kw_only=True)
class ApiResponse:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


@dataclass(kw_only=True)
class Call:
    """One authenticated request, as the handlers see it."""

    github: FakeGitHub
    request: ApiRequest
    principal: Principal
    base_url: str
    params: dict[str, str]

    def number(self, name: str) -> int:
        text = self.params[name]
        if not text.isdigit():
            raise not_found()
        return int(text)

    def organization(self) -> Owner:
        return self.github.accounts.organization(self.params["org"])

    def repository(self) -> Repository:
        return self.github.accounts.repository(self.params["owner"], self.params["repo"])

    def json(self) -> dict[str, Any]:
        if not self.request.body.strip():
            return {}
        try:
            body = msgspec.json.decode(self.request.body)
        except msgspec.DecodeError as error:
            raise ApiError(400, "Problems parsing JSON") from error
        if not isinstance(body, dict):
            raise ApiError(400, "Body should be a JSON object")
        return body

    def page(self, items: Sequence[Any], to_json: Callable[[Any], Json]) -> tuple[list[Json], dict[str, str]]:
        """One page of the items, and the `Link` header."""
        size, page = self._per_page(), max(1, _integer(self.request.query.get("page"), 1))
        last = max(1, -(-len(items) // size))
        links: dict[str, dict[str, str]] = {}
        if page > 1:
            links |= {"prev": {"page": str(min(page - 1, last))}, "first": {"page": "1"}}
        if page < last:
            links |= {"next": {"page": str(page + 1)}, "last": {"page": str(last)}}
        shown = items[(page - 1) * size : page * size]
        return [to_json(item) for item in shown], self._link(links)

    def cursor_page(self, items: Sequence[Any], to_json: Callable[[Any], Json]) -> tuple[list[Json], dict[str, str]]:
        """One page of items that are ordered from the highest id to the lowest."""
        size, cursor = self._per_page(), self.request.query.get("cursor")
        if cursor is not None:
            version, _, number = cursor.partition("_")
            if version != "v1" or not number.isdigit():
                raise ApiError(400, "Invalid cursor")
            items = [item for item in items if item.id < int(number)]
        shown = items[:size]
        links = {"next": {"cursor": f"v1_{shown[-1].id}"}} if len(items) > size else {}
        return [to_json(item) for item in shown], self._link(links)

    def _per_page(self) -> int:
        return min(LARGEST_PAGE, max(1, _integer(self.request.query.get("per_page"), DEFAULT_PAGE)))

    def _link(self, links: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        if not links:
            return {}
        parts = []
        for relation, changed in links.items():
            query = urllib.parse.urlencode({**self.request.query, **changed})
            parts.append(f'<{self.base_url}{self.request.path}?{query}>; rel="{relation}"')
        return {"Link": ", ".join(parts)}


Handler = Callable[[Call], ApiResponse]


@dataclass(frozen=True)
class Route:
    method: str
    template: str
    access: Access
    handler: Handler


def reply(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> ApiResponse:
    return ApiResponse(status=status, headers=dict(headers or {}), body=msgspec.json.encode(body))


def _integer(text: str | None, default: int) -> int:
    """
    >>> _integer("7", 30), _integer("seven", 30), _integer(None, 30)
    (7, 30, 30)
    """
    return int(text) if text is not None and text.isdigit() else default
