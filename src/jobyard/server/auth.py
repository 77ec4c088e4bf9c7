"""Who comes in: by a token in the header, or by the cookie of a browser session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobyard.domain.access import Principal
from jobyard.operations.sessions import Sessions, csrf_token_fits
from jobyard.operations.tokens import Tokens
from jobyard.server.dependencies import ServerSettings
from jobyard.server.problems import HttpError
from jobyard.server.rate_limit import TokenBuckets, too_many

if TYPE_CHECKING:
    from starlette.requests import Request

BEARER = b"Bearer "
CSRF_HEADER = "x-csrf-token"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Wrong tokens and logins from one address: so many at once, then one every few seconds.
FAILURES_AT_ONCE = 20.0
FAILURES_PER_SECOND = 0.2


class TokenAuthenticator:
    def __init__(self, tokens: Tokens, sessions: Sessions, settings: ServerSettings | None = None) -> None:
        settings = settings or ServerSettings()
        self.tokens = tokens
        self.sessions = sessions
        self.failures = TokenBuckets(FAILURES_PER_SECOND, FAILURES_AT_ONCE)
        self._requests = TokenBuckets(settings.requests_per_second, settings.request_burst)

    async def authenticate(self, request: Request) -> Principal | None:
        given = authorization(request)
        principal = None
        if given is not None and given.startswith(BEARER):
            principal = self.tokens.cached(given[len(BEARER) :])
        if principal is None:
            principal = await (self._by_cookie(request) if given is None else self._by_header(request, given))
        if principal is not None:
            seconds = self._requests.take(principal.id)
            if seconds > 0:
                raise too_many(seconds, "This token asks too often.")
        return principal

    async def holds(self, principal_id: str) -> bool:
        """Whether this token is still good: what stays open for it asks now and then."""
        return await self.tokens.holder(principal_id) is not None

    async def _by_cookie(self, request: Request) -> Principal | None:
        session = session_of(request)
        if session is None:
            return None
        principal = await self.sessions.find(session)
        if principal is not None and request.method not in SAFE_METHODS:
            require_own_page(request)
            if not csrf_token_fits(session, request.headers.get(CSRF_HEADER, "")):
                raise HttpError(403, "csrf", "A change by a browser session needs its X-CSRF-Token (see /v1/me).")
        return principal

    async def _by_header(self, request: Request, given: bytes) -> Principal | None:
        scheme, _, text = given.decode("latin-1").partition(" ")
        principal = await self.tokens.authenticate(text.strip()) if scheme.lower() == "bearer" else None
        if principal is None:
            # Whoever holds a good token is let in whatever others at this address do: it may be a proxy's.
            seconds = self.failures.take(address_of(request))
            if seconds > 0:
                raise too_many(seconds, "Too many wrong tokens came from this address.")
        return principal


def authorization(request: Request) -> bytes | None:
    """As it came: the hot path need not look at the other headers."""
    for name, value in request.scope["headers"]:
        if name == b"authorization":
            return bytes(value)
    return None


def address_of(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def cookie_name(request: Request) -> str:
    """Over https the name itself forbids that a neighbouring host sets it."""
    return "__Host-jobyard_session" if request.scope["scheme"] == "https" else "jobyard_session"


def session_of(request: Request) -> str | None:
    return request.cookies.get(cookie_name(request))


def require_own_page(request: Request) -> None:
    """A change that a browser sends with a cookie must come from a page of this server."""
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site")
    same = bool(origin) and origin is not None and origin.partition("//")[2] == request.headers.get("host")
    if (origin is not None and not same) or (site is not None and site != "same-origin") or (site or origin) is None:
        raise HttpError(403, "csrf", "This change does not come from a page of this server.")
