"""An HTTP server that sends exactly what a test wants: wrong JSON, half a response, or nothing at all."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import msgspec

HANG = "hang"
DRIP = "drip"  # a byte now and then, and never a whole response
LOST = "lost"  # the request was carried out, and the connection ends without a response


class Received(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def token(self) -> str:
        return self.headers.get("authorization", "").removeprefix("Bearer ")


class Reply(NamedTuple):
    status: int = 200
    data: Any = None
    headers: Mapping[str, str] | None = None
    raw: bytes | None = None  # instead of data as JSON

    def encoded(self) -> bytes:
        body = (b"" if self.status == 204 else msgspec.json.encode(self.data)) if self.raw is None else self.raw
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "Content-Length": str(len(body)),
            "Connection": "close",
            **(self.headers or {}),
        }
        lines = [f"HTTP/1.1 {self.status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode() + body


Script = Callable[[Received], Reply | str]


def refused(status: int, message: str, **headers: str) -> Reply:
    return Reply(status, {"message": message}, {name.replace("_", "-"): value for name, value in headers.items()})


class ScriptedServer:
    """`on["GET /orgs/acme"]`: a reply, a list of replies of which the last is repeated, or a function."""

    def __init__(self) -> None:
        self.on: dict[str, Reply | str | list[Reply | str] | Script] = {}
        self.received: list[Received] = []
        self.url = ""

    def count(self, route: str) -> int:
        return sum(f"{request.method} {request.path}" == route for request in self.received)

    def _reply(self, request: Received) -> Reply | str:
        self.received.append(request)
        found = self.on.get(f"{request.method} {request.path}", refused(404, "Not Found"))
        if isinstance(found, list):
            return found.pop(0) if len(found) > 1 else found[0]
        return found(request) if callable(found) else found

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            method, target, _ = head[0].split(" ")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            parts = urlsplit(target)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            reply = self._reply(Received(method, parts.path, query, headers, body))
            if reply == HANG:
                await reader.read()  # until the client gives up
            elif reply == DRIP:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n")
                while not reader.at_eof():
                    writer.write(b" ")
                    await writer.drain()
                    await asyncio.sleep(0.02)
            elif isinstance(reply, Reply):
                writer.write(reply.encoded())
                await writer.drain()
        except (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()


@asynccontextmanager
async def scripted_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedServer]:
    script = ScriptedServer()
    server = await asyncio.start_server(script._serve, "127.0.0.1", 0, ssl=tls)
    script.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield script
    finally:
        server.close()
