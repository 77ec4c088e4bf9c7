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

from jobyard.doors.http.problems import MEDIA_TYPE, TITLES, Problem

# Where a handler finds how to cut the connection off, with what is still in its buffer.
ABORT = "jobyard.abort"


class WireLimits(msgspec.Struct, frozen=True, kw_only=True):
    header_seconds: float = 10.0  # from the first byte, or from connecting, to the end of the headers
    body_seconds: float = 60.0  # from there to the end of the body
    max_header_bytes: int = 32_768  # request line included
    max_headers: int = 100
    max_connections: int = 4000


class LimitedProtocol(HttpToolsProtocol):
    limits = WireLimits()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        wire = transport.get_extra_info("socket")
        if wire is not None and wire.family in (socket.AF_INET, socket.AF_INET6):
            # An answer is written in two pieces; the second must not wait until the first is acknowledged.
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._timer: asyncio.TimerHandle | None = None
        self._in_head = True
        self._head_bytes = 0
        self._refusal: tuple[int, str, str] | None = None
        if len(self.connections) > self.limits.max_connections:
            self._refuse(503, "too_many_connections", "This server holds as many connections as it can.")
        else:
            self._expect(self.limits.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None or self.transport.is_closing():
            return  # an answer is on its way; nothing more is read
        if self._in_head:
            if self._timer is None:
                self._expect(self.limits.header_seconds)
            self._head_bytes += len(data)
        super().data_received(data)
        # A head that is not complete yet was only counted as it came.
        if self._in_head and self._head_bytes > self.limits.max_header_bytes:
            self._refuse_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_size = 0
        cast(dict[str, Any], self.scope)[ABORT] = self.transport.abort

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count(len(name) + len(value) + 4)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = 0
        self._expect(self.limits.body_seconds)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head = True
        self._expect(None)
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Called when the parser gave up; it does so too when we refuse from inside of it."""
        if self._refusal is None:
            self._refuse(400, "not_http", msg)
        else:
            self._answer(*self._refusal)

    def _count(self, size: int) -> None:
        self._head_size += size
        if self._head_size > self.limits.max_header_bytes or len(self.headers) > self.limits.max_headers:
            self._refusal = (431, "headers_too_large", self._most())
            raise ValueError(self._most())  # ends the parsing, and comes back as send_400_response

    def _most(self) -> str:
        return f"A request has at most {self.limits.max_headers} headers of {self.limits.max_header_bytes:,} bytes."

    def _refuse_head(self) -> None:
        self._refuse(431, "headers_too_large", self._most())

    def _expect(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._too_slow)

    def _too_slow(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self._in_head and self._head_bytes == 0:
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
        head = b"content-type: %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (MEDIA_TYPE.encode(), len(body))
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()


def limited(limits: WireLimits) -> type[LimitedProtocol]:
    """A protocol for uvicorn's `http=`."""
    words: dict[str, Any] = {"limits": limits}
    return type("LimitedProtocol", (LimitedProtocol,), words)
