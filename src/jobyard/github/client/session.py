"""Requests with one credential: gidgethub's client over the shared HTTP client, with the credential's rate limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import gidgethub.abc
from gidgethub import sansio

from jobyard.github.client.http import Http, Response, deadline, unavailable
from jobyard.github.client.rate_limits import RateLimits
from jobyard.github.client.responses import SUCCESS, error_of, is_json, message_of
from jobyard.github.errors import GitHubRejected

ACCEPT = "application/vnd.github+json"
API_VERSION = "2022-11-28"
MAX_PAGES = 10_000
PER_PAGE = 100

Item = dict[str, Any]
Names = Mapping[str, str | int]


class Credential(Protocol):
    async def token(self, rejected: str | None = None) -> str:
        """The token to send. With `rejected`, another one than that if there can be one."""


class ItemPage(NamedTuple):
    items: list[Item]
    total_count: int | None


class GitHubSession(gidgethub.abc.GitHubAPI):
    """Paths are URI templates below the address of the API, filled in with `names`."""

    def __init__(self, http: Http, credential: Credential) -> None:
        super().__init__("jobyard", base_url=http.base_url)
        self.http = http
        self.credential = credential
        self.scopes: frozenset[str] | None = None  # of a classic personal access token, from its responses
        self._limits = RateLimits()

    async def get_item(self, path: str, names: Names | None = None) -> Item:
        url = self._url(path, names)
        return _item("GET", url, (await self._call("GET", url))[0])

    async def send(self, method: str, path: str, names: Names | None = None, data: Any = b"") -> Any:
        """Send POST or DELETE, once: what a lost response has done is for the caller to find out."""
        return (await self._call(method, self._url(path, names), data))[0]

    async def send_item(self, method: str, path: str, names: Names | None = None, data: Any = b"") -> Item:
        return _item(method, self._url(path, names), await self.send(method, path, names, data))

    async def pages(self, path: str, names: Names | None = None, key: str | None = None) -> AsyncIterator[ItemPage]:
        """Read a list page by page. `key`: where the items are, if the response is an object."""
        url = self._url(path, names)
        seen: set[str] = set()
        while url not in seen and len(seen) < MAX_PAGES:
            seen.add(url)
            data, link = await self._call("GET", url)
            yield _page(url, data, key)
            if link is None:
                return
            # Only the query is taken: the link may name a host that is reached by another address from here.
            url = urlsplit(url)._replace(query=urlsplit(link).query).geturl()
        raise unavailable("GET", url, "the list does not end")

    async def items(self, path: str, names: Names | None = None, key: str | None = None) -> AsyncIterator[Item]:
        async for page in self.pages(path, names, key):
            for item in page.items:
                yield item

    def _url(self, path: str, names: Names | None) -> str:
        names = names or {}
        wrong = next((name for name in names.values() if name in {"", ".", ".."}), None)
        if wrong is not None:
            raise GitHubRejected(f'Cannot use {path}: "{wrong}" is not a valid name.', 400)
        return formatted(path, tuple(names.items()), self.base_url)

    async def _call(self, method: str, url: str, data: Any = b"") -> tuple[Any, str | None]:
        """One request and the one that repeats it with a new token, within the deadline."""
        async with deadline(self.http.deadline, f"{method} {urlsplit(url).path}", changes=method != "GET"):
            token = await self.credential.token()
            try:
                return await self._send(method, url, data, token)
            except GitHubRejected as error:
                if error.status != 401:
                    raise
                # Nothing was done. The token may have expired early, or the App was installed again.
                renewed = await self.credential.token(rejected=token)
                if renewed == token:
                    raise
            return await self._send(method, url, data, renewed)

    async def _send(self, method: str, url: str, data: Any, token: str) -> tuple[Any, str | None]:
        headers = {"authorization": f"Bearer {token}", "x-github-api-version": API_VERSION}
        try:
            found, link, _ = await self._make_request(method, url, None, data, ACCEPT, extra_headers=headers)
        except (ValueError, LookupError, RecursionError) as error:
            raise unavailable(method, url, "the response is not valid JSON") from error
        return found, link

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[int, Mapping[str, str], bytes]:
        kind = kind_of(url)
        self._limits.check(kind)
        response = await self.http.send(method, url, headers, body)
        self._note_scopes(response)
        message = message_of(response)
        if message is not None:
            message = message.replace(headers["authorization"].removeprefix("Bearer "), "...")
        limited = self._limits.note(kind, response.status, response.headers, message or "no explanation")
        if limited is not None:
            raise limited
        if response.status not in SUCCESS:
            raise error_of(method, url, response, message)
        if response.body and not is_json(response):
            raise unavailable(method, url, "the response is not JSON, perhaps a proxy's")
        kept = {"content-type": "application/json"} if response.body else {}
        if link := response.headers.get("link"):
            kept["link"] = link
        return response.status, kept, response.body

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def _note_scopes(self, response: Response) -> None:
        scopes = response.headers.get("x-oauth-scopes")
        if scopes is not None:
            self.scopes = frozenset(scope.strip() for scope in scopes.split(",") if scope.strip())


@lru_cache(maxsize=1024)
def formatted(path: str, names: tuple[tuple[str, str | int], ...], base_url: str) -> str:
    """Kept, as lists are read again and again: expanding the template took longer than reading a short list."""
    return sansio.format_url(path, dict(names), base_url=base_url)


def kind_of(url: str) -> str:
    """What requests count towards the same limit: the last word of their path.

    >>> kind_of("https://api.github.com/orgs/acme/actions/runners/12?page=2")
    'runners'
    """
    return urlsplit(url).path.rstrip("/0123456789").rpartition("/")[2]


def _item(method: str, url: str, data: Any) -> Item:
    if not isinstance(data, dict):
        raise unavailable(method, url, "the response is not an object")
    return data


def _page(url: str, data: Any, key: str | None) -> ItemPage:
    total = data.get("total_count") if isinstance(data, dict) else None
    found = data.get(key) if isinstance(data, dict) and key else data
    if not isinstance(found, list):
        raise unavailable("GET", url, "the response is not a list")
    return ItemPage([item for item in found if isinstance(item, dict)], total if isinstance(total, int) else None)
