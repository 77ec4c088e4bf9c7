"""The wire below the application: requests that dawdle, flood or never end are cut off before they cost anything.

uvicorn knows a limit of connections and a time for idle ones, but no time within which a request must have come and no
size of its head; this adds them, and a way to drop a reader that takes no more.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from jobyard.api.schemas.problems import Problem
from jobyard.server.problems import MEDIA_TYPE, TITLES

# Where a handler finds how to cut the connection off, with what is still in its buffer.
ABORT = "jobyard.abort"
# A server that is full is not dead: whoever watches it is still answered, on so many connections more.
PROBES = (b"/livez", b"/readyz", b"/health")
FOR_PROBES = 50
FULL = "This server holds as many connections as it can."
IDLE, HEAD, BODY = "idle", "head", "body"  # how far a request has come


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    header_seconds: float = 10.0  # from the first byte, or from connecting, to the end of the headers
    body_seconds: float = 60.0  # from there to the end of the body
    max_header_bytes: int = 32_768  # request line included
    max_headers: int = 100
    max_connections: int = 4000


class LimitedProtocol(HttpToolsProtocol):
    """A request that comes whole in one piece, as most do, needs no timer and next to no counting."""

    limits = ConnectionLimits()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        wire = transport.get_extra_info("socket")
        if wire is not None and wire.family in (socket.AF_INET, socket.AF_INET6):
            # An answer is written in two pieces; the second must not wait until the first is acknowledged.
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = 0  # which one of this connection
        self._stage = IDLE
        self._head_bytes = 0  # of a head that is not complete yet
        self._timer: asyncio.TimerHandle | None = None
        self._timed = (0, IDLE)  # what the timer is for
        self._refusal: tuple[int, str, str] | None = None
        beyond = len(self.connections) - self.limits.max_connections
        self._is_beyond = beyond > 0
        if beyond > FOR_PROBES:
            self._refuse(503, "too_many_connections", FULL)
        else:
            self._expect(self.limits.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None or self.transport.is_closing():
            return  # an answer is on its way; nothing more is read
        if self._stage is not BODY:
            self._head_bytes += len(data)
        before = (self._request, self._stage)
        super().data_received(data)
        if self._refusal is None:
            self._judge(is_empty=before == (self._request, IDLE) and self._stage is IDLE)

    def _judge(self, *, is_empty: bool) -> None:
        """What came is read: is it within its size, and how long may the rest take?"""
        is_large = self._stage is HEAD and self._head_bytes > self.limits.max_header_bytes
        # Headers may also come after the body.
        if is_large or (self._stage is BODY and len(self.headers) > self.limits.max_headers):
            self._refuse(431, "headers_too_large", self._most())
        elif is_empty:
            if self._timer is None:  # blank lines are no request, but no idleness either
                self._expect(self.limits.header_seconds)
        elif self._timed != (self._request, self._stage):
            self._timed = (self._request, self._stage)
            times = {IDLE: None, HEAD: self.limits.header_seconds, BODY: self.limits.body_seconds}
            self._expect(times[self._stage])

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._request += 1
        self._stage = HEAD
        cast(dict[str, Any], self.scope)[ABORT] = self.transport.abort

    def on_headers_complete(self) -> None:
        size, self._head_bytes = self._head_bytes, 0
        if size > self.limits.max_header_bytes:  # perhaps only because of the body that came with it
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.limits.max_header_bytes or len(self.headers) > self.limits.max_headers:
            self._refusal = (431, "headers_too_large", self._most())
            raise ValueError(self._most())  # ends the parsing, and comes back as send_400_response
        if self._is_beyond and self.url.partition(b"?")[0] not in PROBES:
            self._refusal = (503, "too_many_connections", FULL)
            raise ValueError(FULL)
        self._stage = BODY
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stage = IDLE
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Called when the parser gave up; it does so too when we refuse from inside of it."""
        if self._refusal is None:
            self._refuse(400, "not_http", msg)
        else:
            self._answer(*self._refusal)

    def _most(self) -> str:
        return f"A request has at most {self.limits.max_headers} headers of {self.limits.max_header_bytes:,} bytes."

    def _expect(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._too_slow)

    def _too_slow(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self._stage is IDLE:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()  # nothing was asked, so nothing is answered
        elif self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()  # an answer has begun; another one would be taken for a part of it
        else:
            self._refuse(408, "too_slow", "The request did not come within its time.")

    def _refuse(self, status: int, code: str, detail: str) -> None:
        self._refusal = (status, code, detail)
        self._answer(status, code, detail)

    def _answer(self, status: int, code: str, detail: str) -> None:
        self._expect(None)
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # what its handler still says is not sent
            self.cycle.message_event.set()
        title = TITLES.get(status, "Not taken")
        body = msgspec.json.encode(Problem(title=title, status=status, code=code, detail=detail))
        again = b"retry-after: 1\r\n" if status == 503 else b""
        size = b"content-length: %d\r\n" % len(body)
        head = b"content-type: " + MEDIA_TYPE.encode() + b"\r\n" + size + again + b"connection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()


def limited(limits: ConnectionLimits) -> type[LimitedProtocol]:
    """A protocol for uvicorn's `http=`."""
    words: dict[str, Any] = {"limits": limits}
    return type("LimitedProtocol", (LimitedProtocol,), words)
