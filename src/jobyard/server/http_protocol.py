"""Limits on HTTP connections: slow, large and excess requests are rejected before the application sees them.

llhttp parses and uvicorn runs the requests; neither bounds trailers, pipelined requests, unread responses or the time
of a request. docs/decisions/0015-http-protocol.md says why this protocol adds the bounds instead of another server.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, cast

import msgspec
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from jobyard.api.schemas.problems import Problem
from jobyard.server.problems import MEDIA_TYPE, TITLES
from jobyard.server.tls_handshake import TlsHandshake

# The key in the scope of a function that aborts the connection and discards its write buffer.
ABORT = "jobyard.abort"
# A full server still answers health probes, on this many extra connections: full is not dead.
PROBES = (b"/livez", b"/readyz", b"/health")
PROBE_CONNECTIONS = 50
ADDRESS_PROBE_CONNECTIONS = 10
# An extra connection must send its request within this time, so that silent ones do not use up the reserve.
PROBE_SECONDS = 1.0
TOO_MANY_CONNECTIONS = "The server holds its maximum number of connections{of}. Retry later."
# Longer than the idle time of common proxies and clients, so that they close an idle connection first. Otherwise a
# request could arrive on a connection that the server is just closing.
KEEP_ALIVE_SECONDS = 75
IDLE, HEAD, BODY = "idle", "head", "body"  # what of a request has been received so far
# A request is fed to the parser up to its end, and a body in pieces of this size: the parser cannot be stopped within
# a piece, and everything in it becomes requests or callbacks at once.
END, PIECE_BYTES, BODY_PIECE_BYTES = b"\r\n\r\n", 16_384, 512
# Other connections get their turn after this many bytes.
TURN_BYTES = 65_536


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    header_seconds: float = 10.0  # from the first byte, or from connecting, to the end of the headers
    body_seconds: float = 60.0  # from there to the end of the body
    write_seconds: float = 30.0  # a client that reads nothing of a response for this long is disconnected
    max_header_bytes: int = 32_768  # request line included; also of the trailers
    max_headers: int = 100  # also of the trailers
    max_connections: int = 4000
    max_connections_per_address: int = 2000


class HoldableFlowControl(FlowControl):
    """Reading stays paused while it is held, although uvicorn resumes it for every request."""

    is_held = False

    def hold(self) -> None:
        self.is_held = True
        self.pause_reading()

    def resume_reading(self) -> None:
        if not self.is_held:
            super().resume_reading()


class LimitedProtocol(HttpToolsProtocol):
    """A request that arrives in one piece, as most do, needs no timer and almost no counting."""

    limits = ConnectionLimits()
    addresses: ClassVar[Counter[str]] = Counter()  # connections by address, also those in a TLS handshake
    handshakes: ClassVar[set[TlsHandshake]] = set()

    @classmethod
    def count(cls, client: tuple[str, int] | None) -> str:
        """Count a connection; returns its address, for `release`."""
        address = counted_address(client)
        cls.addresses[address] += 1
        return address

    @classmethod
    def release(cls, address: str) -> None:
        cls.addresses[address] -= 1
        if cls.addresses[address] <= 0:
            del cls.addresses[address]

    @classmethod
    def excess(cls, address: str, connections: int) -> tuple[int, int]:
        """How many connections there are beyond the limits: in all, and of the address."""
        return (
            connections + len(cls.handshakes) - cls.limits.max_connections,
            cls.addresses[address] - cls.limits.max_connections_per_address,
        )

    @classmethod
    def seconds_for(cls, address: str, connections: int) -> float | None:
        """Until what the client must send first, headers or a TLS handshake, is complete; None if it is rejected."""
        in_all, own = cls.excess(address, connections)
        if in_all > PROBE_CONNECTIONS or own > ADDRESS_PROBE_CONNECTIONS:
            return None
        is_excess = in_all > 0 or own > 0
        return min(PROBE_SECONDS, cls.limits.header_seconds) if is_excess else cls.limits.header_seconds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            # A response is written in two pieces; Nagle's algorithm would delay the second by up to 40 ms.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.flow = self._flow = HoldableFlowControl(transport)
        self._unread = b""  # received, but not fed to the parser yet
        self._request = 0  # number of the request on this connection
        self._stage = IDLE
        self._head_bytes = 0  # of headers that are not complete yet
        self._framing_bytes = 0  # of trailers and chunk extensions: since the last byte of the body
        self._hosts = self._trailers = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timed = (0, IDLE)  # request and stage that the timer is for
        self._write_timer: asyncio.TimerHandle | None = None
        self._rejection: tuple[int, str, str] | None = None
        self._address = self.count(self.client)
        self._is_excess = max(self.excess(self._address, len(self.connections))) > 0
        seconds = self.seconds_for(self._address, len(self.connections))
        if seconds is None:
            self._reject(503, "too_many_connections", self._too_many())
        else:
            self._set_deadline(seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_deadline(None)
        if self._write_timer is not None:
            self._write_timer.cancel()
        self._unread = b""
        self.release(self._address)
        super().connection_lost(exc)

    # Receiving

    def data_received(self, data: bytes) -> None:
        if self._rejection is not None or self.transport.is_closing():
            return  # the error response is being sent; nothing more is read
        if self._unread or self._is_answering():
            self._unread += data  # at most one read of the transport, because reading is held from now on
            self._flow.hold()
        elif len(data) <= PIECE_BYTES and data.count(END) <= 1:
            self._feed(data)
        else:
            self._unread = data
            self._feed_pieces()

    def _is_answering(self) -> bool:
        """Whether a request is complete and its response is not."""
        return self._stage is IDLE and self.cycle is not None and not self.cycle.response_complete

    def _feed_pieces(self) -> None:
        """Feed what was received, one request at a time and with turns for other connections."""
        fed = 0
        while self._unread and self._rejection is None and self.parser is not None:
            if self.transport.is_closing():
                return
            if self._is_answering():
                self._flow.hold()  # until on_response_complete
                return
            if fed >= TURN_BYTES:
                self._flow.hold()
                self.loop.call_soon(self._feed_pieces)
                return
            end = self._unread.find(END, BODY_PIECE_BYTES if self._stage is BODY else 0, PIECE_BYTES)
            size = PIECE_BYTES if end < 0 else end + len(END)
            piece, self._unread = self._unread[:size], self._unread[size:]
            fed += len(piece)
            self._feed(piece)
        self._flow.is_held = False
        if self._rejection is None and not self.transport.is_closing():
            self._flow.resume_reading()

    def _feed(self, data: bytes) -> None:
        if self._stage is BODY:
            self._framing_bytes += len(data)
        else:
            self._head_bytes += len(data)
        before = (self._request, self._stage)
        super().data_received(data)
        if self._rejection is None:
            self._check(is_empty=before == (self._request, IDLE) and self._stage is IDLE)

    def _check(self, *, is_empty: bool) -> None:
        """After each read: reject headers that are too large, and set the deadline for what is still missing."""
        limits = self.limits
        is_large = self._stage is HEAD and self._head_bytes > limits.max_header_bytes
        if is_large or self._framing_bytes > limits.max_header_bytes or self._trailers > limits.max_headers:
            self._reject(431, "headers_too_large", self._header_limit())
        elif is_empty:
            if self._timer is None:  # blank lines before a request must not keep the connection open forever
                self._set_deadline(limits.header_seconds)
        elif self._timed != (self._request, self._stage):
            self._timed = (self._request, self._stage)
            times = {IDLE: None, HEAD: limits.header_seconds, BODY: limits.body_seconds}
            self._set_deadline(times[self._stage])

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._request += 1
        self._stage = HEAD
        self._hosts = self._trailers = self._framing_bytes = 0
        cast(dict[str, Any], self.scope)[ABORT] = self.transport.abort

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._stage is not HEAD:
            self._trailers += 1  # ignored: a trailer must not pass for a header such as Authorization
            return
        name = name.lower()
        if name == b"host":
            self._hosts += 1
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        size, self._head_bytes = self._head_bytes, 0
        if size > self.limits.max_header_bytes:  # perhaps only because part of the body came along
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.limits.max_header_bytes or len(self.headers) > self.limits.max_headers:
            self._rejection = (431, "headers_too_large", self._header_limit())
        elif self._hosts != 1 and (self._hosts > 1 or self.parser.get_http_version() == "1.1"):
            self._rejection = (400, "bad_host", "Invalid request: an HTTP/1.1 request needs exactly one Host header.")
        elif self._is_excess and self.url.partition(b"?")[0] not in PROBES:
            self._rejection = (503, "too_many_connections", self._too_many())
        if self._rejection is not None:
            raise ValueError(self._rejection[2])  # stops the parser, which then calls send_400_response
        self._stage = BODY
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._framing_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._stage = IDLE
        self._framing_bytes = 0
        super().on_message_complete()

    # Sending

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._write_timer is None and self.transport.get_write_buffer_size() > 0:
            self._watch_writes()
        if self._unread:
            self._unset_keepalive_if_required()
            self.loop.call_soon(self._feed_pieces)
        elif self._flow.is_held:
            self._feed_pieces()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_writes()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _watch_writes(self) -> None:
        if self._write_timer is None:
            now = (self.transport.get_write_buffer_size(), self._request)
            self._write_timer = self.loop.call_later(self.limits.write_seconds, self._check_writes, *now)

    def _check_writes(self, size_before: int, request: int) -> None:
        self._write_timer = None
        size = self.transport.get_write_buffer_size()
        if size >= size_before > 0 and request == self._request:
            self.transport.abort()  # the client reads nothing, and its responses take up memory
        elif size > 0:
            self._watch_writes()

    def send_400_response(self, msg: str) -> None:
        """Called when the parser fails, also when a callback above stopped it."""
        if self._rejection is None:
            self._reject(400, "not_http", msg)
        else:
            self._send_problem(*self._rejection)

    def _too_many(self) -> str:
        is_own = self.excess(self._address, len(self.connections))[0] <= 0
        return TOO_MANY_CONNECTIONS.format(of=" of one address" if is_own else "")

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
        self._unread = b""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # discards what its handler still sends
            self.cycle.message_event.set()
        body = msgspec.json.encode(Problem(title=TITLES[status], status=status, code=code, detail=detail))
        retry_after = b"retry-after: 1\r\n" if status == 503 else b""
        length = b"content-length: %d\r\n" % len(body)
        head = b"content-type: " + MEDIA_TYPE.encode() + b"\r\n" + length + retry_after + b"connection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()
        self._watch_writes()


def counted_address(client: tuple[str, int] | None) -> str:
    """What counts as one address: a network of 64 bits for IPv6, of which one host has many addresses.

    >>> counted_address(("192.0.2.1", 1)), counted_address(("2001:db8:1:2:3:4:5:6", 1)), counted_address(None)
    ('192.0.2.1', '2001:db8:1:2::', '')
    """
    host = "" if client is None else client[0]
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host)
    return str(address.ipv4_mapped or ipaddress.IPv6Address(int(address) >> 64 << 64))


class UvicornServer(uvicorn.Server):
    """uvicorn without signal handlers, because signals concern the whole process; `ready` is set once it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._handshakes: set[TlsHandshake] = getattr(config.http, "handshakes", set())
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        context, self.config.ssl = self.config.ssl, None
        if context is not None:
            http_class: Any = self.config.http_protocol_class
            self.config.http_protocol_class = cast(Any, partial(TlsHandshake, context, http_class))
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for handshake in list(self._handshakes):
            handshake.abort()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def uvicorn_options(limits: ConnectionLimits, *, access_log: bool = False) -> dict[str, Any]:
    """Options of `uvicorn.Config` besides the application and its address."""
    own = {"limits": limits, "addresses": Counter(), "handshakes": set()}
    return {
        "http": type("LimitedProtocol", (LimitedProtocol,), own),
        "ws": "none",
        "timeout_keep_alive": KEEP_ALIVE_SECONDS,
        "backlog": 2048,
        "access_log": access_log,
        "server_header": False,
        "log_config": None,
    }
