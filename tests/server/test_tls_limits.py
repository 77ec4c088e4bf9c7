"""TLS handshakes count as connections and have a deadline."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx
import msgspec
import pytest
import uvloop
from tests.server.support import ApiServer, serving
from tests.servers import Certificate
from tests.support import eventually

from jobyard.server import http_protocol
from jobyard.server.dependencies import OpenAccess
from jobyard.server.http_protocol import ADDRESS_PROBE_CONNECTIONS, ConnectionLimits
from jobyard.server.routes import health, tokens
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock

LIMITS = ConnectionLimits(header_seconds=3600.0, max_connections_per_address=3)


def on_each_loop(test: Callable[[Certificate], Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Each event loop has a TLS of its own."""

    @pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
    def run(new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(test(Certificate(tmp_path)))

    return run


@pytest.fixture(autouse=True)
def probes_may_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "PROBE_SECONDS", 60.0)


@asynccontextmanager
async def tls_server(certificate: Certificate, limits: ConnectionLimits) -> AsyncIterator[str]:
    api = ApiServer(MemoryStore(ManualClock()), [tokens.ROUTES, health.ROUTES], authenticator=OpenAccess())
    async with serving(api.app, limits, certificate) as url:
        yield url


def client_of(url: str, certificate: Certificate) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, verify=ssl.create_default_context(cafile=certificate.authority), timeout=60)


class Silent:
    """A connection that sends nothing."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, url: str, source: str = "127.0.0.1") -> Silent:
        parts = urlsplit(url)
        return cls(*await asyncio.open_connection(parts.hostname, parts.port, local_addr=(source, 0)))

    async def ended(self) -> bytes:
        try:
            return await asyncio.wait_for(self.reader.read(), 60)
        except ConnectionResetError:
            return b""
        finally:
            self.writer.close()


async def status(url: str, certificate: Certificate, path: str) -> int:
    async with client_of(url, certificate) as client:
        return (await client.get(path)).status_code


@on_each_loop
async def test_a_handshake_that_does_not_end_is_cut_off(certificate: Certificate) -> None:
    async with tls_server(certificate, msgspec.structs.replace(LIMITS, header_seconds=0.3)) as url:
        began = time.monotonic()
        assert await (await Silent.to(url)).ended() == b""
        assert time.monotonic() - began > 0.2
        assert await status(url, certificate, "/v1/me") == 200


@on_each_loop
async def test_unfinished_handshakes_use_up_the_connections_of_their_address(certificate: Certificate) -> None:
    async with tls_server(certificate, LIMITS) as url:
        held = [await Silent.to(url) for _ in range(LIMITS.max_connections_per_address)]
        await eventually(lambda: is_full(url, certificate))
        assert await status(url, certificate, "/livez") == 200, "probes keep their reserve"
        elsewhere = await Silent.to(url, "127.0.0.2")
        http_protocol.PROBE_SECONDS = 0.5
        more = [await Silent.to(url) for _ in range(2 * ADDRESS_PROBE_CONNECTIONS)]
        # Those beyond the reserve are closed at once, the others after this time.
        for each in more:
            assert await each.ended() == b""
        for each in (*held, elsewhere):
            assert not each.reader.at_eof()
            each.writer.close()


async def is_full(url: str, certificate: Certificate) -> bool:
    return await status(url, certificate, "/v1/me") == 503


@on_each_loop
async def test_failed_handshakes_free_their_connections(certificate: Certificate) -> None:
    async with tls_server(certificate, LIMITS) as url:
        for hello in [b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"] * 5 * LIMITS.max_connections_per_address:
            connection = await Silent.to(url)
            connection.writer.write(hello)
            if hello:
                await connection.ended()
            connection.writer.close()

        async def is_free() -> bool:
            return not await is_full(url, certificate)

        await eventually(is_free)


@on_each_loop
async def test_a_request_in_the_same_packet_as_the_end_of_the_handshake_is_answered(certificate: Certificate) -> None:
    """With TLS 1.3 a client may send its request together with the last message of the handshake."""
    trusted = ssl.create_default_context(cafile=certificate.authority)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = trusted.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    async with tls_server(certificate, LIMITS) as url:
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await asyncio.wait_for(reader.read(65536), 60))
        tls.write(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        writer.write(outgoing.read())
        answer = b""
        while b" 200 " not in answer:
            incoming.write(await asyncio.wait_for(reader.read(65536), 60))
            with contextlib.suppress(ssl.SSLWantReadError):
                while chunk := tls.read():
                    answer += chunk
        writer.close()


@on_each_loop
async def test_a_server_stops_while_handshakes_are_open(certificate: Certificate) -> None:
    async with tls_server(certificate, LIMITS) as url:
        held = [await Silent.to(url) for _ in range(3)]
        await eventually(lambda: is_full(url, certificate))
    for each in held:
        assert await each.ended() == b""
