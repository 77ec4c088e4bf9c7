"""Connection limits: slow and oversized requests are rejected while others continue."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import time
from collections.abc import AsyncIterator
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2 as httpx
import msgspec
import pytest
from tests.server.support import ApiServer, serving
from tests.support import eventually

from jobyard.server import http_protocol
from jobyard.server.dependencies import OpenAccess
from jobyard.server.http_protocol import ABORT, PROBE_CONNECTIONS, ConnectionLimits, LimitedProtocol
from jobyard.server.routes import events, health, tokens
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock

LIMITS = ConnectionLimits(
    header_seconds=0.3, body_seconds=0.5, write_seconds=0.2, max_header_bytes=8192, max_headers=30, max_connections=10
)
# For tests of other limits: on a busy machine they must not reach a deadline.
UNHURRIED = msgspec.structs.replace(LIMITS, header_seconds=30, body_seconds=30, write_seconds=30)
# Of a body that is complete in time: a busy machine may delay its second half.
BODY_SECONDS = 3.0
ASK = b"GET /v1/me HTTP/1.1\r\nHost: x\r\n"


class CurrentLimits:
    """Limits that a test changes while the server runs: connecting and a first request have all the time they need."""

    def __init__(self) -> None:
        self.now = UNHURRIED

    def __getattr__(self, name: str) -> Any:
        return getattr(self.now, name)


@pytest.fixture
def limits() -> CurrentLimits:
    return CurrentLimits()


@pytest.fixture(autouse=True)
def probes_may_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "PROBE_SECONDS", 30.0)


@contextlib.asynccontextmanager
async def serving_with(limits: ConnectionLimits) -> AsyncIterator[str]:
    api = ApiServer(
        MemoryStore(ManualClock()), [tokens.ROUTES, events.ROUTES, health.ROUTES], authenticator=OpenAccess()
    )
    async with serving(api.app, limits) as url:
        yield url
        api.dependencies.draining.set()


@pytest.fixture
async def server(limits: CurrentLimits) -> AsyncIterator[str]:
    async with serving_with(cast(ConnectionLimits, limits)) as url:
        yield url


@pytest.fixture
async def hasty() -> AsyncIterator[str]:
    """A server with short deadlines."""
    async with serving_with(LIMITS) as url:
        yield url


class Wire:
    """A raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, url: str) -> Wire:
        parts = urlsplit(url)
        return cls(*await asyncio.open_connection(parts.hostname, parts.port))

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> bytes:
        """Everything until the server closes."""
        try:
            return await asyncio.wait_for(self.reader.read(-1), 60)
        except ConnectionError:
            return b""
        finally:
            self.writer.close()

    async def status(self) -> int:
        return int((await self.answer()).split(b" ", 2)[1])


async def test_endless_headers_time_out(hasty: str) -> None:
    started = time.monotonic()
    wire = await Wire.to(hasty)
    await wire.say(ASK)
    response = await wire.answer()
    assert b" 408 " in response
    assert b"too_slow" in response
    assert time.monotonic() - started > 0.2


async def test_slow_bytes_do_not_extend_the_deadline(hasty: str) -> None:
    wire = await Wire.to(hasty)

    async def drip() -> None:
        try:
            for letter in itertools.cycle(ASK):
                await wire.say(bytes([letter]))
                await asyncio.sleep(0.02)
        except ConnectionError:
            pass

    dripping = asyncio.ensure_future(drip())
    await wire.answer()
    dripping.cancel()


async def test_silent_connection_is_closed(hasty: str) -> None:
    wire = await Wire.to(hasty)
    assert await wire.answer() == b""


async def test_endless_body_times_out(hasty: str) -> None:
    wire = await Wire.to(hasty)
    head = b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    await wire.say(head)
    assert await wire.status() == 408


async def test_second_request_has_its_own_deadline(server: str, limits: CurrentLimits) -> None:
    wire = await Wire.to(server)
    await wire.say(ASK + b"\r\n")
    assert b" 200 " in await wire.reader.readline()
    limits.now = LIMITS
    await wire.say(ASK)
    assert b" 408 " in await wire.answer()


async def test_idle_connection_is_kept(server: str, limits: CurrentLimits) -> None:
    wire = await Wire.to(server)
    for _ in range(2):
        await wire.say(ASK + b"\r\n")
        assert b" 200 " in await wire.reader.readline()
        await wire.reader.readuntil(b"}")
        limits.now = LIMITS
    # Longer than the header deadline: idle between requests is not slow.
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(wire.reader.readuntil(b"never"), LIMITS.header_seconds * 2)
    await wire.say(ASK + b"Connection: close\r\n\r\n")
    assert b" 200 " in await wire.answer()


@pytest.mark.parametrize("head", [
    ASK + b"X-Long: " + b"x" * 9000 + b"\r\n\r\n",
    ASK + b"".join(b"X-%d: y\r\n" % number for number in range(40)) + b"\r\n",
    ASK + b"X-Endless: " + b"x" * 200_000,
    b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
], ids=["long", "many", "endless", "path"])  # fmt: skip
async def test_too_many_headers_are_rejected(server: str, head: bytes) -> None:
    wire = await Wire.to(server)
    await wire.say(head)
    response = await wire.answer()
    assert response == b"" or b" 431 " in response  # a reset may overtake the response when more was sent than read
    async with httpx.AsyncClient(base_url=server, timeout=60) as client:
        assert (await client.get("/v1/me")).status_code == 200


async def test_blank_lines_do_not_extend_the_deadline(server: str, limits: CurrentLimits) -> None:
    wire = await Wire.to(server)
    await wire.say(ASK + b"\r\n")
    assert b" 200 " in await wire.reader.readline()
    limits.now = LIMITS

    async def drip() -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                await wire.say(b"\r\n")
                await asyncio.sleep(0.02)

    dripping = asyncio.ensure_future(drip())
    await wire.answer()
    dripping.cancel()


async def test_large_body_does_not_count_as_headers(server: str) -> None:
    wire = await Wire.to(server)
    body = b'{"name": "' + b"x" * 20_000 + b'", "role": "viewer"}'
    head = b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
    await wire.say(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert await wire.status() == 422  # a name of 20,000 letters


async def test_chunked_body_clears_the_deadline(server: str, limits: CurrentLimits) -> None:
    limits.now = msgspec.structs.replace(UNHURRIED, body_seconds=BODY_SECONDS)
    wire = await Wire.to(server)
    body = b'{"name": "x", "role": "viewer"}'
    head = b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    await wire.say(head % len(body) + body[:5])
    await asyncio.sleep(0.05)
    await wire.say(body[5:])
    assert b" 201 " in await wire.reader.readline()
    with pytest.raises(TimeoutError):  # idle for longer than the body deadline
        await asyncio.wait_for(wire.reader.readuntil(b"never"), BODY_SECONDS * 1.1)
    await wire.say(ASK + b"Connection: close\r\n\r\n")
    assert b" 200 " in await wire.answer()


async def test_blank_lines_do_not_interrupt_a_response(server: str, limits: CurrentLimits) -> None:
    wire = await Wire.to(server)
    await wire.say(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b" 200 " in await wire.reader.readline()
    limits.now = LIMITS
    await wire.reader.readuntil(b"snapshot")
    await wire.say(b"\r\n")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(wire.reader.readuntil(b"never"), LIMITS.header_seconds * 2)
    assert not wire.reader.at_eof()
    wire.writer.close()


async def test_too_many_trailers_are_rejected(server: str) -> None:
    wire = await Wire.to(server)
    head = b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    await wire.say(head + b"\r\n0\r\n" + b"".join(b"X-%d: y\r\n" % number for number in range(100)))
    response = await wire.answer()
    assert response == b"" or b" 431 " in response


CHUNKED = b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("framing", [b"0\r\nX-Long: ", b"1;extension="], ids=["trailer", "chunk extension"])
async def test_endless_trailer_is_rejected(server: str, framing: bytes) -> None:
    wire = await Wire.to(server)
    await wire.say(CHUNKED + framing + b"x" * 50_000)
    response = await wire.answer()
    assert response == b"" or b" 431 " in response


async def test_trailers_are_ignored() -> None:
    """A trailer that looks like a header is not one: neither the token nor the host can come from it."""
    api = ApiServer(MemoryStore(ManualClock()), [tokens.ROUTES])
    trailer = b"Authorization: Bearer " + (await api.token()).encode() + b"\r\nHost: other\r\n\r\n"
    async with serving(api.app, UNHURRIED) as url:
        wire = await Wire.to(url)
        await wire.say(CHUNKED.replace(b"Host: x\r\n", b"Host: x\r\nConnection: close\r\n") + b"2\r\n{}\r\n0\r\n")
        await wire.say(trailer)
        assert await wire.status() == 401


@pytest.mark.parametrize("hosts", [b"", b"Host: x\r\nHost: x\r\n"], ids=["none", "two"])
async def test_exactly_one_host_header_is_accepted(server: str, hosts: bytes) -> None:
    wire = await Wire.to(server)
    await wire.say(b"GET /v1/me HTTP/1.1\r\n" + hosts + b"\r\n")
    response = await wire.answer()
    assert b" 400 " in response
    assert b"bad_host" in response


async def test_http_1_0_needs_no_host_header(server: str) -> None:
    wire = await Wire.to(server)
    await wire.say(b"GET /v1/me HTTP/1.0\r\n\r\n")
    assert await wire.status() == 200


class LargeResponse:
    """Responds with 256 KB to each request, and keeps the protocol of its connection."""

    def __init__(self) -> None:
        self.requests = 0
        self.was_disconnected = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        self.protocol: LimitedProtocol = scope[ABORT].__self__.get_protocol()
        self.requests += 1
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"262144")]})
        try:
            await send({"type": "http.response.body", "body": b"x" * 262_144})
        finally:
            if self.protocol.transport.is_closing():
                self.was_disconnected.set()


async def test_pipelined_requests_are_not_read_while_responses_are_unsent() -> None:
    app = LargeResponse()
    limits = msgspec.structs.replace(LIMITS, write_seconds=60.0)
    async with serving(app, limits) as url:
        wire = await Wire.to(url)
        wire.writer.write((ASK + b"\r\n") * 20_000)  # 760 KB, of which few are answered until the client reads
        await eventually(lambda: app.requests > 0 and app.protocol.flow.write_paused)
        for _ in range(20):
            await asyncio.sleep(0)
            assert len(app.protocol.pipeline) <= 1
            assert len(app.protocol._unread) <= 512 * 1024
        assert app.requests < 200
        wire.writer.transport.abort()


async def test_client_that_reads_nothing_is_disconnected() -> None:
    app = LargeResponse()
    async with serving(app, LIMITS) as url:
        wire = await Wire.to(url)
        wire.writer.write((ASK + b"\r\n") * 200)
        await asyncio.wait_for(app.was_disconnected.wait(), 60)
        wire.writer.transport.abort()


async def test_connections_of_one_address_are_limited() -> None:
    api = ApiServer(MemoryStore(ManualClock()), [tokens.ROUTES, health.ROUTES], authenticator=OpenAccess())
    limits = msgspec.structs.replace(UNHURRIED, max_connections_per_address=3)
    async with serving(api.app, limits) as url:
        wires = [await Wire.to(url) for _ in range(limits.max_connections_per_address)]
        for wire in wires:
            await wire.say(ASK + b"\r\n")
            assert b" 200 " in await wire.reader.readline()
        one_more, probe = await Wire.to(url), await Wire.to(url)
        await one_more.say(ASK + b"\r\n")
        assert await one_more.status() == 503
        await probe.say(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 200 " in await probe.reader.readline()
        other = Wire(*await asyncio.open_connection(*urlsplit(url).netloc.split(":"), local_addr=("127.0.0.2", 0)))
        await other.say(ASK + b"Connection: close\r\n\r\n")
        assert await other.status() == 200, "another address has its own connections"
        for wire in (*wires, probe):
            wire.writer.close()


@pytest.mark.parametrize("garbage", [b"\x00\xff\xfe\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"])
async def test_garbage_gets_a_problem_document(server: str, garbage: bytes) -> None:
    wire = await Wire.to(server)
    await wire.say(garbage)
    assert b" 400 " in await wire.answer()


async def test_connections_are_limited_and_released(server: str) -> None:
    wires = [await Wire.to(server) for _ in range(LIMITS.max_connections)]
    for wire in wires:
        await wire.say(ASK + b"\r\n")
        assert b" 200 " in await wire.reader.readline()
    one_more, probe = await Wire.to(server), await Wire.to(server)
    await one_more.say(ASK + b"\r\n")
    refused = await one_more.answer()
    assert b" 503 " in refused
    assert b"retry-after: 1" in refused
    assert b"too_many_connections" in refused
    await probe.say(b"GET /livez?verbose HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b" 200 " in await probe.reader.readline(), "who watches it is still answered"
    more = [await Wire.to(server) for _ in range(PROBE_CONNECTIONS)]
    assert await more[-1].status() == 503
    for wire in (*more, probe):
        wire.writer.close()
    for wire in wires:
        wire.writer.close()

    async def is_back() -> bool:
        async with httpx.AsyncClient(base_url=server, timeout=60) as client:
            return (await client.get("/v1/me")).status_code == 200

    await eventually(is_back)


async def test_pipelined_requests_are_answered_in_order(server: str) -> None:
    wire = await Wire.to(server)
    await wire.say((ASK + b"\r\n") * 5 + ASK + b"Connection: close\r\n\r\n")
    assert (await wire.answer()).count(b"HTTP/1.1 200 ") == 6


async def test_response_is_not_delayed_by_nagle() -> None:
    """Head and body are two writes: with Nagle's algorithm the second waits about 40 ms for a delayed ACK."""
    app = LargeResponse()
    async with serving(app, UNHURRIED) as url, httpx.AsyncClient(base_url=url, timeout=60) as client:
        await client.get("/")
        connection = app.protocol.transport.get_extra_info("socket")
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
