"""Authentication: by a bearer token, or by the cookie of a browser session."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from jobyard.config.sections import ServerSection
from jobyard.domain.access import Principal
from jobyard.operations.sessions import Sessions, csrf_token_fits
from jobyard.operations.tokens import Tokens
from jobyard.server.parsing import raw_header
from jobyard.server.problems import HttpError
from jobyard.server.rate_limit import RESPONSE_HEADERS, TokenBuckets, too_many_requests

if TYPE_CHECKING:
    from starlette.requests import Request

log = logging.getLogger("jobyard.http")

BEARER = b"Bearer "
CSRF_HEADER = "x-csrf-token"
CROSS_SITE = "Cross-site requests cannot change anything."
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Failed attempts per address: a burst, then one every five seconds, so that tokens cannot be guessed.
FAILURE_BURST = 20.0
FAILURES_PER_SECOND = 0.2


class TokenAuthenticator:
    def __init__(self, tokens: Tokens, sessions: Sessions, settings: ServerSection | None = None) -> None:
        settings = settings or ServerSection()
        self.tokens = tokens
        self.sessions = sessions
        self.failures = TokenBuckets(FAILURES_PER_SECOND, FAILURE_BURST)
        self.on_wrong_token: Callable[[], None] = lambda: None
        self._requests = TokenBuckets(settings.requests_per_second, settings.request_burst)

    async def authenticate(self, request: Request) -> Principal | None:
        header = raw_header(request, b"authorization")
        principal = None
        if header is not None and header.startswith(BEARER):
            principal = self.tokens.cached(header[len(BEARER) :])
        if principal is None:
            principal = await (self._by_cookie(request) if header is None else self._by_header(request, header))
        if principal is not None:
            seconds = self._requests.take(principal.id)
            request.scope[RESPONSE_HEADERS] = self._requests.headers()
            if seconds > 0:
                raise too_many_requests(seconds, "The token exceeded its request rate.")
        return principal

    async def is_valid(self, principal_id: str, session: str | None = None) -> bool:
        found = self.tokens.holder(principal_id) if session is None else self.sessions.find(session)
        return await found is not None

    async def _by_cookie(self, request: Request) -> Principal | None:
        session = session_cookie(request)
        if session is None:
            return None
        principal = await self.sessions.find(session)
        if principal is not None and request.method not in SAFE_METHODS:
            require_same_origin(request)
            if not csrf_token_fits(session, request.headers.get(CSRF_HEADER, "")):
                detail = "The X-CSRF-Token header is missing or wrong. Send csrf_token of GET /v1/me."
                raise HttpError(403, "csrf", detail)
        return principal

    async def _by_header(self, request: Request, header: bytes) -> Principal | None:
        scheme, _, text = header.decode("latin-1").partition(" ")
        principal = await self.tokens.authenticate(text.strip()) if scheme.lower() == "bearer" else None
        if principal is None:
            self.reject(request, "Too many wrong tokens from this address.")
        return principal

    def reject(self, request: Request, too_many: str) -> None:
        """Count and log a wrong token. Raise HttpError if the address sent too many.

        Only failures are limited by address: behind a proxy, all callers share one.
        """
        self.on_wrong_token()
        address = client_address(request)
        seconds = self.failures.take(address)
        if seconds > 0:
            raise too_many_requests(seconds, too_many)
        log.warning("wrong token from %s: %s %s", address or "an unknown address", request.method, request.url.path)


def client_address(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def cookie_name(request: Request) -> str:
    """The __Host- prefix stops other hosts of the same domain from setting the cookie; it requires https."""
    return "__Host-jobyard_session" if request.scope["scheme"] == "https" else "jobyard_session"


def session_cookie(request: Request) -> str | None:
    return request.cookies.get(cookie_name(request))


def session_of(request: Request) -> str | None:
    """The cookie of the session that the request belongs to; None for a request with a token."""
    return session_cookie(request) if raw_header(request, b"authorization") is None else None


def is_cross_site(host: bytes, site: bytes, origin: bytes) -> bool:
    """Whether a page of another site made the request, by its Host, Sec-Fetch-Site and Origin headers.

    >>> is_cross_site(b"a", b"same-origin", b"http://a"), is_cross_site(b"a", b"", b"http://b")
    (False, True)
    """
    return site not in (b"", b"same-origin", b"none") or (bool(origin) and origin.partition(b"//")[2] != host)


def require_no_cross_site(request: Request) -> None:
    """For a request that changes something although its method is safe; the middleware covers the other methods."""
    if is_cross_site(*(request.headers.get(name, "").encode() for name in ("host", "sec-fetch-site", "origin"))):
        raise HttpError(403, "cross_site", CROSS_SITE)


def require_same_origin(request: Request) -> None:
    """Reject a change with a cookie that does not come from a page of this server."""
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site")
    same = bool(origin) and origin is not None and origin.partition("//")[2] == request.headers.get("host")
    if (origin is not None and not same) or (site is not None and site != "same-origin") or (site or origin) is None:
        raise HttpError(403, "csrf", "The request does not come from a page of this server.")
