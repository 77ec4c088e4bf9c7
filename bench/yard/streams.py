"""A backlog is worked off while a server has many open streams of events, read by a process of their own."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import cast
from urllib.parse import urlsplit

from bench.contender import Outcome
from bench.yard import draining
from bench.yard.http import serving
from bench.yard.workload import Limits, run

PATIENCE_SECONDS = 60.0


class Stream(asyncio.Protocol):
    """Reads and forgets."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_open = True
        self.bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        self.bytes += len(data)
        if not self.begun.done():
            assert data.startswith(b"HTTP/1.1 200"), data
            self.begun.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if not self.begun.done():
            self.begun.set_exception(exc or ConnectionError("the server closed the stream"))


async def _read(address: str, token: str, count: int, pipe: Connection) -> None:
    parts = urlsplit(address)
    assert parts.hostname is not None
    assert parts.port is not None
    host, port = parts.hostname, parts.port
    request = f"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    loop = asyncio.get_running_loop()
    streams = []
    for _ in range(count):
        _, stream = await loop.create_connection(lambda: Stream(request), host, port)
        streams.append(stream)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*(stream.begun for stream in streams))
    pipe.send("open")
    await asyncio.to_thread(pipe.recv)
    pipe.send((sum(stream.is_open for stream in streams), sum(stream.bytes for stream in streams)))


def _reader(address: str, token: str, count: int, pipe: Connection) -> None:
    run(_read(address, token, count, pipe))


def drain(url: str, limits: Limits, jobs: int, streams: int) -> Outcome:
    with serving(url) as (address, token):
        here, there = multiprocessing.Pipe()
        reader = multiprocessing.get_context("spawn").Process(target=_reader, args=(address, token, streams, there))
        reader.start()
        there.close()
        here.recv()
        before = time.process_time()
        elapsed, _, _ = run(draining.work_off(url, limits, jobs, jobs))
        worked = time.process_time() - before
        here.send("stop")
        left, read = here.recv()
        reader.join()
    return Outcome(
        {
            "jobs_per_second": jobs / elapsed,
            "worker_us_per_job": worked / jobs * 1e6,
            "streams_left": left,
            "megabytes_read": read / 1e6,
        }
    )
