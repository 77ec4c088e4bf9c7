"""Around the whole application: security headers on every answer, and no changes from other sites' pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from jobyard.server.problems import problem

# Scripts, styles and data come from this server alone, and nobody may frame its pages.
CONTENT_SECURITY_POLICY = "; ".join((
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", "font-src 'self'",
    "connect-src 'self'", "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'",
))  # fmt: skip

ALWAYS = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not "no-referrer": with that, browsers send the forms of our own pages with "Origin: null".
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
NO_STORE = (b"cache-control", b"no-store")
STRICT_TRANSPORT = (b"strict-transport-security", b"max-age=31536000")
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class SecurityMiddleware:
    """`hosts`: the only names under which this server answers; without them, any. An open server on loopback needs
    them: a page of another site could otherwise reach it by a name that it makes point here.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str] | None = None) -> None:
        self._app = app
        self._hosts = None if hosts is None else frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = with_headers(send, secure=scope["scheme"] == "https")
        refusal = self._refusal(scope)
        await (self._app if refusal is None else refused(refusal))(scope, receive, send)

    def _refusal(self, scope: Scope) -> str | None:
        host = site = origin = b""
        for name, value in scope["headers"]:
            if name == b"host":
                host = value
            elif name == b"sec-fetch-site":
                site = value
            elif name == b"origin":
                origin = value
        if self._hosts is not None and name_of(host) not in self._hosts:
            return "This server does not answer under that name."
        if scope["method"] in SAFE_METHODS:
            return None
        if site not in (b"", b"same-origin", b"none") or (origin and origin.partition(b"//")[2] != host):
            return "A change must not come from a page of another site."
        return None


def name_of(host: bytes) -> str:
    """
    >>> name_of(b"localhost:80"), name_of(b"[::1]:80"), name_of(b"[")
    ('localhost', '::1', '')
    """
    text = host.decode("latin-1").lower()
    return text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]


def refused(detail: str) -> ASGIApp:
    return problem(403, "cross_site", detail)


def with_headers(send: Send, *, secure: bool) -> Callable[[MutableMapping[str, Any]], Awaitable[None]]:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), *ALWAYS]
            if all(name != b"cache-control" for name, _ in headers):
                headers.append(NO_STORE)
            if secure:
                headers.append(STRICT_TRANSPORT)
            message["headers"] = headers
        await send(message)

    return sending
