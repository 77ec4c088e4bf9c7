"""The HTTP client that all credentials share: deadlines, trusted certificates, bounded bodies, own host only."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

import httpx2

from jobyard.errors import ConfigurationError
from jobyard.github.client.access import GitHubAccess
from jobyard.github.errors import GitHubUnavailable

log = logging.getLogger("jobyard.github")

DEADLINE_SECONDS = 15.0  # GitHub needs about 1 s to register a runner; answers after 10 s were never seen to succeed
CONNECT_SECONDS = 5.0
MAX_CONNECTIONS = 50  # GitHub allows 100 concurrent requests
MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_REDIRECTS = 3
# Events that seem older than that count as late, and GitHub is asked about each.
WARN_SKEW_SECONDS = 10.0
# An idle connection may be closed at the moment of its next use. Without a second try, a launch would wait 30 s for it.
DISCONNECTED = (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError)
KEEP_METHOD = (307, 308)
MOVED = (301, 302, *KEEP_METHOD)


class Response(NamedTuple):
    status: int
    headers: Mapping[str, str]  # any case
    body: bytes


class Http:
    """Requests to the address of the API. A redirect to another host is returned as it is, never followed."""

    def __init__(
        self,
        access: GitHubAccess,
        deadline: float = DEADLINE_SECONDS,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.base_url = access.base_url
        self.deadline = deadline
        self.enterprise_version: str | None = None  # of GitHub Enterprise Server, from its responses
        self._is_clock_off = False
        self.ahead_seconds = 0.0  # how far the clock of GitHub is ahead of the local one
        self._origin = origin(self.base_url)
        self._ca_file = access.ca_file
        self._transport = transport
        self._client: httpx2.AsyncClient | None = None

    def open(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = httpx2.AsyncClient(
                timeout=httpx2.Timeout(self.deadline, connect=min(CONNECT_SECONDS, self.deadline)),
                limits=httpx2.Limits(max_connections=MAX_CONNECTIONS),
                follow_redirects=False,
                verify=self._trusted(),
                transport=self._transport,
            )
        return self._client

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def now(self) -> float:
        """The time by GitHub's clock, in seconds since 1970."""
        return time.time() + self.ahead_seconds

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Response:
        """Send a request within the deadline. Raises GitHubUnavailable if there is no complete response."""
        async with deadline(self.deadline, f"{method} {urlsplit(url).path}", changes=method != "GET"):
            for _ in range(MAX_REDIRECTS):
                if origin(url) != self._origin:
                    raise AssertionError("The credential is for another host.")
                response = await self.exchange(method, url, headers, body)
                self._note(response.headers)
                target = urljoin(url, response.headers.get("location", url))
                may_follow = method == "GET" or response.status in KEEP_METHOD
                if response.status not in MOVED or not may_follow or origin(target) != self._origin or target == url:
                    return response
                url = target
        raise GitHubUnavailable(f"Cannot {method} {urlsplit(url).path}: GitHub redirects it in a circle.")

    async def exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Response:
        """One request and its response. Raises GitHubUnavailable."""
        may_repeat = method == "GET"
        while True:
            try:
                async with self.open().stream(method, url, headers=dict(headers), content=body) as response:
                    return Response(response.status_code, response.headers, await read_bounded(response))
            except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
                if not may_repeat or not isinstance(error, DISCONNECTED):
                    raise unavailable(method, url, reason_of(error)) from error
                may_repeat = False

    def _note(self, headers: Mapping[str, str]) -> None:
        self.enterprise_version = headers.get("x-github-enterprise-version") or self.enterprise_version
        try:
            ahead = parsedate_to_datetime(headers.get("date", "")).timestamp() - time.time()
        except (ValueError, TypeError):
            return
        self.ahead_seconds = ahead if abs(ahead) > 2.0 else 0.0  # the header has whole seconds
        was_off, self._is_clock_off = self._is_clock_off, abs(ahead) > WARN_SKEW_SECONDS
        if self._is_clock_off and not was_off:
            side = "behind" if ahead > 0 else "ahead of"
            log.warning("the clock of this machine is %.0f seconds %s GitHub's; correct it", abs(ahead), side)

    def _trusted(self) -> ssl.SSLContext | bool:
        if self._ca_file is None:
            # Loading the authorities of the system takes long, and plain HTTP needs none. Not verify=False: without
            # certificates this context rejects every server, so TLS never goes unverified.
            return True if self.base_url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context = ssl.create_default_context()
        try:
            context.load_verify_locations(cafile=self._ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"Cannot read the certificates in {self._ca_file}: {error}. Set github_ca_file to a PEM file."
            ) from error
        return context


@asynccontextmanager
async def deadline(seconds: float, what: str, *, changes: bool = False) -> AsyncIterator[None]:
    """Raise GitHubUnavailable if the block takes longer. `changes`: it may have changed something by then."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        effect = " The request may have taken effect." if changes else ""
        raise GitHubUnavailable(f"GitHub did not answer within {seconds:g} seconds: {what}.{effect}") from None


async def read_bounded(response: httpx2.Response) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise httpx2.DecodingError(f"the response is larger than {MAX_BODY_BYTES} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def origin(url: str) -> tuple[str, str, int]:
    """
    >>> origin("https://API.github.com/user") == origin("https://api.github.com:443")
    True
    """
    parts: SplitResult = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = 0
    return parts.scheme, (parts.hostname or ""), port or (443 if parts.scheme == "https" else 80)


def unavailable(method: str, url: str, reason: str) -> GitHubUnavailable:
    effect = "" if method == "GET" else " The request may have taken effect."
    return GitHubUnavailable(f"Cannot {method} {urlsplit(url).path}: {reason}.{effect}")


def reason_of(error: BaseException) -> str:
    below: BaseException | None = error
    while below is not None and not isinstance(below, ssl.SSLCertVerificationError):
        below = below.__cause__ or below.__context__
    if below is not None:
        return f"the certificate of GitHub is not trusted ({below.verify_message}); set github_ca_file if it is private"
    return (str(error) or type(error).__name__).rstrip(".")
