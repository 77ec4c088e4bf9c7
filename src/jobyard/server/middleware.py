"""Middleware: headers on every response, and protection against cross-site requests."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from itertools import count
from secrets import token_hex
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from jobyard.server.auth import CROSS_SITE, SAFE_METHODS, is_cross_site
from jobyard.server.dispatch import REQUEST_ID
from jobyard.server.parsing import RAW_HEADERS
from jobyard.server.problems import problem
from jobyard.server.rate_limit import RESPONSE_HEADERS

# Scripts, styles and data come from this server only, and its pages cannot be framed.
CONTENT_SECURITY_POLICY = "; ".join((
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", "font-src 'self'",
    "connect-src 'self'", "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'",
))  # fmt: skip

SECURITY_HEADERS = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not "no-referrer": browsers would send the forms of our own pages with "Origin: null".
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
NO_STORE = (b"cache-control", b"no-store")
# Begins the ids of requests that have none: no other process makes the same.
PROCESS = token_hex(5).encode()
_numbers = count(1)
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,100}")
STRICT_TRANSPORT = (b"strict-transport-security", b"max-age=31536000")


class SecurityMiddleware:
    """`hosts`: the only accepted Host headers; None accepts any.

    An open server on loopback needs them against DNS rebinding: another site could point its own name at 127.0.0.1 and
    reach the server from a browser on this machine.

    `root_path`: the path prefix behind a proxy. It is removed from requests, if the proxy has not done so, and added to
    the links in response headers; pages use relative links. `public_origin`: the origin that browsers see.
    """

    def __init__(
        self, app: ASGIApp, hosts: Sequence[str] | None = None, root_path: str = "", public_origin: str | None = None
    ) -> None:
        self._app = app
        self._hosts = None if hosts is None else frozenset(hosts)
        self._root_path = root_path.encode()
        self._public_origin = None if public_origin is None else public_origin.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._root_path:
            remove_prefix(scope, self._root_path)
            send = with_prefix(send, self._root_path)
        if self._public_origin is not None:
            self._adopt_origin(scope, self._public_origin)
        headers: dict[bytes, bytes] = dict(scope["headers"])
        scope[RAW_HEADERS] = headers
        send = with_headers(send, scope, headers.get(b"request-id"))
        detail = self._rejection(scope, headers)
        app = self._app if detail is None else problem(403, "cross_site", detail, instance=scope["path"])
        await app(scope, receive, send)

    def _adopt_origin(self, scope: Scope, public: bytes) -> None:
        """See the request as browsers do: cookies and checks of the origin depend on scheme and host."""
        scheme, _, host = public.partition(b"://")
        scope["scheme"] = scheme.decode()
        if (b"origin", public) in scope["headers"]:
            headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
            scope["headers"] = [(b"host", host), *headers]

    def _rejection(self, scope: Scope, headers: Mapping[bytes, bytes]) -> str | None:
        host = headers.get(b"host", b"")
        if self._hosts is not None and host_name(host) not in self._hosts:
            return f"Invalid Host header. Allowed hosts: {', '.join(sorted(self._hosts))}."
        if scope["method"] in SAFE_METHODS:
            return None
        site, origin = headers.get(b"sec-fetch-site", b""), headers.get(b"origin", b"")
        return CROSS_SITE if is_cross_site(host, site, origin) else None


def host_name(host: bytes) -> str:
    """
    >>> host_name(b"localhost:80"), host_name(b"[::1]:80"), host_name(b"[")
    ('localhost', '::1', '')
    """
    text = host.decode("latin-1").lower()
    return text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]


def with_headers(
    send: Send, scope: Scope, given_id: bytes | None
) -> Callable[[MutableMapping[str, Any]], Awaitable[None]]:
    """Add the security headers, the id of the request, and those that its handler left in the scope."""
    # The caller's own id only if it is safe to return and to log.
    is_given = given_id is not None and _REQUEST_ID.fullmatch(given_id)
    request_id = scope[REQUEST_ID] = given_id if is_given else b"%s-%x" % (PROCESS, next(_numbers))

    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), *SECURITY_HEADERS, *scope.get(RESPONSE_HEADERS, ())]
            headers.append((b"request-id", request_id))
            if all(name != b"cache-control" for name, _ in headers):
                headers.append(NO_STORE)
            if scope["scheme"] == "https":
                headers.append(STRICT_TRANSPORT)
            message["headers"] = headers
        await send(message)

    return send_with_headers


def remove_prefix(scope: Scope, prefix: bytes) -> None:
    raw: bytes = scope.get("raw_path") or b""
    if raw == prefix or raw.startswith(prefix + b"/"):
        scope["raw_path"] = raw[len(prefix) :] or b"/"
        scope["path"] = scope["path"][len(prefix) :] or "/"


def with_prefix(send: Send, prefix: bytes) -> Send:
    """Add the prefix to links of this server in the headers of a response."""
    starts = {b"location": b"/", b"link": b"</"}

    def changed(name: bytes, value: bytes) -> bytes:
        start = starts.get(name.lower())
        return start[:-1] + prefix + value[len(start) - 1 :] if start and value.startswith(start) else value

    async def send_with_prefix(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [(name, changed(name, value)) for name, value in message["headers"]]
        await send(message)

    return send_with_prefix
