"""A server behind TLS: its certificate is verified."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.client.support import Site
from tests.servers.certificate import Certificate

from jobyard.client import Client
from jobyard.errors import ServerUnavailable


@contextlib.asynccontextmanager
async def tls_before(url: str, certificate: Certificate) -> AsyncIterator[str]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.chain, certificate.key)

    async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        target.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        await asyncio.gather(carry(reader, back), carry(there, writer))

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_the_certificate_is_verified(here: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = Certificate(tmp_path)
    token = await here.token()
    async with tls_before(here.url, certificate) as url:
        async with (
            Client(url, token, patience=600) as client,
            asyncio.timeout(60),
        ):  # at once: it would not change by waiting
            with pytest.raises(ServerUnavailable, match="certificate verify failed"):
                await client.me()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.authority))
        async with Client(url, token) as client:
            assert (await client.me()).role == "admin"
