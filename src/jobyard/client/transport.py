"""Requests: send, retry if safe, decode the response or raise its error."""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from jobyard.client.address import TOKEN, checked_url, found_token
from jobyard.client.errors import error_of
from jobyard.domain.instant import Instant
from jobyard.errors import ConfigurationError, JobyardError, QueueFull, ServerUnavailable, Unauthorized

try:
    import httpx2
except ModuleNotFoundError as error:
    raise ConfigurationError(
        "jobyard.client needs the Python package httpx2, which is not installed. "
        "Install it with: pip install 'jobyard[client]'"
    ) from error

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.1, 5.0
# Concurrent requests, and as many again that wait on the server. Streams are not limited.
AT_ONCE = 100
# The Date header has whole seconds: a smaller clock difference cannot be measured by it.
COARSE_MILLISECONDS = 2000
# Raised before anything was sent, so a retry is always safe.
UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
# The server, or a proxy before it, is temporarily unavailable.
UNAVAILABLE = (502, 503, 504)

Query = Sequence[tuple[str, str]]


class ListPage(Protocol[T_co]):
    @property
    def items(self) -> tuple[T_co, ...]: ...
    @property
    def next_page_token(self) -> str | UnsetType: ...


class FailedRequest(NamedTuple):
    error: Exception
    may_retry: bool
    wait_seconds: float | None = None  # from Retry-After


class Transport:
    def __init__(self, url: str, token: str | None, timeout: float, patience: float) -> None:
        self.url = checked_url(url)
        self._token = found_token(token)
        self._timeout = timeout
        self.patience = patience
        self._behind: Instant = 0  # how far the local clock is behind the server's
        self._client: httpx2.AsyncClient | None = None
        self._short, self._long = asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(AT_ONCE)

    def __repr__(self) -> str:
        return f"<Transport {self.url}>"

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    @property
    def may_wait(self) -> bool:
        """Whether one more request may wait on the server."""
        return not self._long.locked()

    def now(self) -> Instant:
        """The time by the clock of the server, estimated from its Date headers."""
        return round(time.time() * 1000) + self._behind

    async def call(
        self,
        method: str,
        path: str,
        answer: type[T],
        *,
        query: Query = (),
        body: Any = None,
        key: str | None = None,
        wait_seconds: float = 0.0,
        patience: float | None = None,
        also: Sequence[int] = (),
    ) -> T:
        """Send a request and decode its response as `answer`.

        `key`: an Idempotency-Key, which makes retries safe. `wait_seconds`: how long the server may wait before it
        responds. `also`: statuses, beside 2xx, whose body is an `answer`, too.
        """
        request = self._request(method, path, query, body, key, wait_seconds)
        is_safe = method == "GET" or key is not None
        end = time.monotonic() + (self.patience if patience is None else patience)
        for tries in itertools.count(1):
            async with self._long if wait_seconds else self._short:
                found = await self._once(request, is_safe=is_safe, also=also)
            if isinstance(found, httpx2.Response):
                return self._read(found, answer)
            wait = pause(tries) if found.wait_seconds is None else found.wait_seconds + pause(1)
            if not found.may_retry or time.monotonic() + wait > end:
                raise found.error
            await asyncio.sleep(wait)
        raise AssertionError("unreachable")

    async def walk(self, path: str, page_type: type[ListPage[T]], query: Mapping[str, Any]) -> AsyncIterator[T]:
        """The items of a list, fetched page by page. A page may be short, even empty, and still have a token."""
        token: str | None = None
        while True:
            page = await self.call("GET", path, page_type, query=as_query({**query, "page_token": token}))
            for item in page.items:
                yield item
            if page.next_page_token is UNSET:
                return
            token = str(page.next_page_token)

    def _request(
        self, method: str, path: str, query: Query, body: Any, key: str | None, wait_seconds: float
    ) -> dict[str, Any]:
        content = None if body is None else msgspec.json.encode(body)
        headers = trace_headers()
        if key is not None:
            headers["Idempotency-Key"] = key
        if content is not None:
            headers["Content-Type"] = "application/json"
        return {
            "method": method,
            "url": self.url + path,
            "params": list(query) or None,
            "content": content,
            "headers": headers,
            "timeout": httpx2.Timeout(self._timeout, read=self._timeout + wait_seconds),
        }

    async def _once(
        self, request: dict[str, Any], *, is_safe: bool, also: Sequence[int]
    ) -> httpx2.Response | FailedRequest:
        try:
            response = await self._http().request(**request)
        except httpx2.TransportError as error:
            may_retry = (is_safe or isinstance(error, UNSENT)) and not is_untrusted(error)
            return FailedRequest(self._unavailable(error), may_retry)
        self._note_time(response)
        if response.is_success or response.status_code in also:
            return response
        failure = self._error(response.status_code, response.content)
        # Status 429 means that nothing was done; but a full queue is an error for the caller, not for a retry.
        is_limited = response.status_code == 429 and not isinstance(failure, QueueFull)
        may_retry = is_limited or (is_safe and response.status_code in UNAVAILABLE)
        return FailedRequest(failure, may_retry, _seconds(response.headers.get("Retry-After")))

    @asynccontextmanager
    async def stream(self, path: str, query: Query, last_id: str, read_seconds: float) -> AsyncIterator[Any]:
        """Open a stream of server-sent events; raises as `call` does."""
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if last_id:
            headers["Last-Event-ID"] = last_id
        timeout = httpx2.Timeout(self._timeout, read=read_seconds)
        try:
            async with self._http().stream(
                "GET", self.url + path, params=list(query) or None, headers=headers, timeout=timeout
            ) as response:
                self._note_time(response)
                if not response.is_success:
                    raise self._error(response.status_code, await response.aread())
                yield httpx2.EventSource(response)
        except httpx2.TransportError as error:
            raise self._unavailable(error) from error

    def _http(self) -> httpx2.AsyncClient:
        if self._client is None:
            headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=AT_ONCE)
            # Loading the system's certificates takes longer than most commands; plain HTTP needs none. Not
            # verify=False: without certificates this context rejects every server, so TLS never goes unverified.
            verify = True if self.url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._client = httpx2.AsyncClient(headers=headers, limits=limits, verify=verify)
        return self._client

    def _read(self, response: httpx2.Response, answer: type[T]) -> T:
        if answer is type(None):
            return None
        try:
            return msgspec.json.decode(response.content, type=answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ServerUnavailable(
                f"Cannot read the response of {self.url}: {error}. Is it a jobyard server of this version?"
            ) from error

    def _error(self, status: int, content: bytes) -> JobyardError:
        """The error of a response; authentication errors name the variable instead of the header."""
        error = error_of(status, content, self.url)
        if not isinstance(error, Unauthorized):
            return error
        if self._token is None:
            return Unauthorized(f"{self.url} requires a token. Set {TOKEN}, or pass one to the client.")
        return Unauthorized(f"{self.url} rejected the token: it is wrong, revoked or expired. Check {TOKEN}.")

    def _unavailable(self, error: Exception) -> ServerUnavailable:
        found = ServerUnavailable(unavailable_message(self.url, error))
        found.__cause__ = error
        return found

    def _note_time(self, response: httpx2.Response) -> None:
        try:
            there = parsedate_to_datetime(response.headers["Date"]).timestamp() * 1000
        except (KeyError, ValueError, TypeError):
            return
        behind = round(there - time.time() * 1000)
        self._behind = behind if abs(behind) > COARSE_MILLISECONDS else 0


def decode_event(text: str, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=shape)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ServerUnavailable(f"Received an event that is not from a jobyard server: {error}.") from error


def trace_headers() -> dict[str, str]:
    """The trace of the caller; empty unless the program has imported OpenTelemetry: nothing is imported for this."""
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.trace.propagation import tracecontext  # noqa: PLC0415

    headers: dict[str, str] = {}
    tracecontext.TraceContextTextMapPropagator().inject(headers)
    return headers


def is_untrusted(error: BaseException) -> bool:
    """Whether the certificate of the server is not trusted, so that a retry is useless."""
    return any(isinstance(each, ssl.SSLCertVerificationError) for each in causes(error))


def causes(error: BaseException) -> Iterator[BaseException]:
    below: BaseException | None = error
    while below is not None:
        yield below
        below = below.__cause__ or below.__context__


def unavailable_message(url: str, error: Exception) -> str:
    for cause in causes(error):
        if isinstance(cause, ConnectionRefusedError):
            return f"Cannot connect to {url}: connection refused. Check the URL and that the server is running."
        if isinstance(cause, socket.gaierror):
            return f"Cannot connect to {url}: the host name does not resolve. Check the URL."
        if isinstance(cause, ssl.SSLError) and cause.reason == "WRONG_VERSION_NUMBER":
            return f"Cannot connect to {url}: the server speaks HTTP. Use http://."
    return f"The server {url} does not respond: {str(error) or type(error).__name__}."


def pause(tries: int) -> float:
    """Exponential backoff with jitter, so that clients that fail together do not retry together."""
    longest = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(tries - 1, 20))
    return longest * random.uniform(0.5, 1.0)


def _seconds(text: str | None) -> float | None:
    """
    >>> _seconds("2"), _seconds("Wed, 21 Oct 2026 07:28:00 GMT"), _seconds(None)
    (2.0, None, None)
    """
    return float(text) if text is not None and text.isascii() and text.isdigit() else None


def as_query(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Query parameters of the values that are not None; lists are repeated.

    >>> as_query({"queue": "mail", "group": None, "state": ["FAILED", "TIMEOUT"]})
    [('queue', 'mail'), ('state', 'FAILED'), ('state', 'TIMEOUT')]
    """
    found: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, list | tuple):
            found += [(name, str(each)) for each in value]
        elif value is not None:
            found.append((name, str(value)))
    return found
