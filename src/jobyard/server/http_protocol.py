"""Limits on HTTP connections: slow, large and excess requests are rejected before the application sees them.

uvicorn limits the number of connections and closes idle ones, but has no deadline for receiving a request and no limit
for the size of its headers. This protocol adds both, and lets a handler abort a connection whose reader has stalled.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from jobyard.api.schemas.problems import Problem
from jobyard.server.problems import MEDIA_TYPE, TITLES

# The key in the scope of a function that aborts the connection and discards its write buffer.
ABORT = "jobyard.abort"
# A full server still answers health probes, on this many extra connections: full is not dead.
PROBES = (b"/livez", b"/readyz", b"/health")
PROBE_CONNECTIONS = 50
TOO_MANY_CONNECTIONS = "The server holds its maximum number of connections. Retry later."
# Longer than the idle time of common proxies and clients, so that they close an idle connection first. Otherwise a
# request could arrive on a connection that the server is just closing.
KEEP_ALIVE_SECONDS = 75
IDLE, HEAD, BODY = "idle", "head", "body"  # what of a request has been received so far


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    header_seconds: float = 10.0  # from the first byte, or from connecting, to the end of the headers
    body_seconds: float = 60.0  # from there to the end of the body
    max_header_bytes: int = 32_768  # request line included
    max_headers: int = 100
    max_connections: int = 4000


class LimitedProtocol(HttpToolsProtocol):
    """A request that arrives in one piece, as most do, needs no timer and almost no counting."""

    limits = ConnectionLimits()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            # A response is written in two pieces; Nagle's algorithm would delay the second by up to 40 ms.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = 0  # number of the request on this connection
        self._stage = IDLE
        self._head_bytes = 0  # of headers that are not complete yet
        self._timer: asyncio.TimerHandle | None = None
        self._timed = (0, IDLE)  # request and stage that the timer is for
        self._rejection: tuple[int, str, str] | None = None
        excess = len(self.connections) - self.limits.max_connections
        self._is_excess = excess > 0
        if excess > PROBE_CONNECTIONS:
            self._reject(503, "too_many_connections", TOO_MANY_CONNECTIONS)
        else:
            self._set_deadline(self.limits.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_deadline(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._rejection is not None or self.transport.is_closing():
            return  # the error response is being sent; nothing more is read
        if self._stage is not BODY:
            self._head_bytes += len(data)
        before = (self._request, self._stage)
        super().data_received(data)
        if self._rejection is None:
            self._check(is_empty=before == (self._request, IDLE) and self._stage is IDLE)

    def _check(self, *, is_empty: bool) -> None:
        """After each read: reject headers that are too large, and set the deadline for what is still missing."""
        is_large = self._stage is HEAD and self._head_bytes > self.limits.max_header_bytes
        # In the body stage too, because trailers count as headers.
        if is_large or (self._stage is BODY and len(self.headers) > self.limits.max_headers):
            self._reject(431, "headers_too_large", self._header_limit())
        elif is_empty:
            if self._timer is None:  # blank lines before a request must not keep the connection open for ever
                self._set_deadline(self.limits.header_seconds)
        elif self._timed != (self._request, self._stage):
            self._timed = (self._request, self._stage)
            times = {IDLE: None, HEAD: self.limits.header_seconds, BODY: self.limits.body_seconds}
            self._set_deadline(times[self._stage])

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._request += 1
        self._stage = HEAD
        cast(dict[str, Any], self.scope)[ABORT] = self.transport.abort

    def on_headers_complete(self) -> None:
        size, self._head_bytes = self._head_bytes, 0
        if size > self.limits.max_header_bytes:  # perhaps only because part of the body came along
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.limits.max_header_bytes or len(self.headers) > self.limits.max_headers:
            self._rejection = (431, "headers_too_large", self._header_limit())
            raise ValueError(self._header_limit())  # stops the parser, which then calls send_400_response
        if self._is_excess and self.url.partition(b"?")[0] not in PROBES:
            self._rejection = (503, "too_many_connections", TOO_MANY_CONNECTIONS)
            raise ValueError(TOO_MANY_CONNECTIONS)
        self._stage = BODY
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stage = IDLE
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Called when the parser fails, also when a callback above stopped it."""
        if self._rejection is None:
            self._reject(400, "not_http", msg)
        else:
            self._send_problem(*self._rejection)

    def _header_limit(self) -> str:
        limits = self.limits
        return f"A request may have at most {limits.max_headers} headers with {limits.max_header_bytes:,} bytes."

    def _set_deadline(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self._stage is IDLE:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()  # no request was begun, so there is nothing to respond to
        elif self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()  # a second response would be read as part of the first
        else:
            self._reject(408, "too_slow", "The request was not received in time.")

    def _reject(self, status: int, code: str, detail: str) -> None:
        self._rejection = (status, code, detail)
        self._send_problem(status, code, detail)

    def _send_problem(self, status: int, code: str, detail: str) -> None:
        self._set_deadline(None)
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # discards what its handler still sends
            self.cycle.message_event.set()
        body = msgspec.json.encode(Problem(title=TITLES[status], status=status, code=code, detail=detail))
        retry_after = b"retry-after: 1\r\n" if status == 503 else b""
        length = b"content-length: %d\r\n" % len(body)
        head = b"content-type: " + MEDIA_TYPE.encode() + b"\r\n" + length + retry_after + b"connection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()


class UvicornServer(uvicorn.Server):
    """uvicorn without signal handlers, because signals concern the whole process; `ready` is set once it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def uvicorn_options(limits: ConnectionLimits, *, access_log: bool = False) -> dict[str, Any]:
    """Options of `uvicorn.Config` besides the application and its address."""
    return {
        "http": type("LimitedProtocol", (LimitedProtocol,), {"limits": limits}),
        "ws": "none",
        "timeout_keep_alive": KEEP_ALIVE_SECONDS,
        "backlog": 2048,
        "access_log": access_log,
        "server_header": False,
        "log_config": None,
    }
