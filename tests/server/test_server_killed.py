"""A real server, killed under load: each accepted request is one job, and a retry creates no second one."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
from tests import fork_server
from tests.fork_server import ForkedProcess
from tests.story.engines import empty_store, on_every_store
from tests.story.sizes import size
from tests.support import ROOT

from jobyard.config.store_factory import make_store
from jobyard.operations.queries import Queries
from jobyard.ports.admin_store import Filter
from jobyard.ports.store import Store

CONNECTIONS = 64
REQUESTS = size(1_000, 10_000)
KEYS = 300
KILLS = size(3, 5)


class Server:
    """The process and its URL."""

    def __init__(self, process: ForkedProcess, url: str) -> None:
        self.process = process
        self.port = urlsplit(url).port or 0

    async def kill(self) -> None:
        self.process.kill()
        await asyncio.to_thread(self.process.wait)


async def start(store: str, port: int = 0, moment: str = "") -> Server:
    process = fork_server.start(
        "tests.server.killable_server",
        (store, str(port), moment),
        environment=os.environ,
        folder=ROOT,
        stdout=fork_server.PIPE,
        stderr=sys.stderr.fileno(),
    )
    assert process.stdout is not None
    with process.stdout:
        return Server(process, (await asyncio.to_thread(process.stdout.readline)).strip())


@asynccontextmanager
async def server(store: str) -> AsyncIterator[Server]:
    started = await start(store)
    try:
        yield started
    finally:
        await started.kill()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = make_store(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


class Line:
    """A persistent connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, body: bytes, key: str | None = None) -> tuple[int, bytes]:
        """Raises ConnectionError if the response is incomplete."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        named = "" if key is None else f"Idempotency-Key: {key}\r\n"
        head = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\n{named}Content-Type: application/json\r\n"
        try:
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            received = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in received.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            data = await reader.readexactly(int(length.partition(b":")[2]))
        except (OSError, EOFError) as error:
            self.close()
            raise ConnectionError from error
        return int(received.split(b" ", 2)[1]), data

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def body_of(number: int) -> bytes:
    return msgspec.json.encode({"kind": "mail", "payload": {"number": number}, "group": str(number % 7)})


async def numbers(url: str) -> list[int]:
    """The jobs in the store, by the number in their payload."""
    async with opened(url) as store:
        return sorted([job.payload_value()["number"] async for job in Queries(store).walk(Filter())])


async def test_many_requests_over_64_connections_are_each_accepted_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    waiting = iter(range(REQUESTS))
    answered: list[str] = []

    async def send(port: int) -> None:
        line = Line(port)
        for number in waiting:
            status, data = await line.post(body_of(number))
            assert status == 202, data
            answered.append(msgspec.json.decode(data)["id"])
        line.close()

    async with server(url) as running:
        await asyncio.gather(*(send(running.port) for _ in range(CONNECTIONS)))
    assert len(set(answered)) == REQUESTS
    assert await numbers(url) == list(range(REQUESTS))
    async with opened(url) as store:
        assert await store.audit() == []


@pytest.fixture
def url(engine: str, tmp_path: Path) -> Iterator[str]:
    with empty_store(engine, tmp_path) as url:
        yield url


@on_every_store
@pytest.mark.parametrize(("moment", "stored"), [("before", []), ("after", [7])])
async def test_kill_between_insert_and_response_creates_one_job_per_key(
    url: str, moment: str, stored: list[int]
) -> None:
    deadly = await start(url, moment=moment)
    with pytest.raises(ConnectionError):
        await Line(deadly.port).post(body_of(7), "key")
    await deadly.kill()
    assert await numbers(url) == stored
    async with server(url) as running:
        line = Line(running.port)
        first, again = await line.post(body_of(7), "key"), await line.post(body_of(7), "key")
        other = await line.post(body_of(8), "key")
        line.close()
    assert (first[0], again[0], other[0]) == (202, 202, 422)
    assert msgspec.json.decode(first[1])["id"] == msgspec.json.decode(again[1])["id"]
    assert msgspec.json.decode(other[1])["code"] == "idempotency_key_reused"
    assert await numbers(url) == [7]


@on_every_store
async def test_repeated_kills_lose_and_duplicate_nothing(url: str) -> None:
    running = await start(url)
    port, waiting, responses = running.port, iter(range(KEYS)), itertools.count(1)
    moments = [asyncio.Event() for _ in range(KILLS)]
    broken = 0

    async def send() -> None:
        nonlocal broken
        line = Line(port)
        for number in waiting:
            while True:
                try:
                    status, data = await line.post(body_of(number), f"key {number}")
                except OSError:
                    broken += 1
                    await asyncio.sleep(0.02)  # the delay between two retries of a client
                    continue
                assert status == 202, data
                break
            count = next(responses)
            if count % (KEYS // (KILLS + 1)) == 0 and count < KEYS - 1:
                moments[min(count // (KEYS // (KILLS + 1)), KILLS) - 1].set()
        line.close()

    clients = asyncio.gather(*(send() for _ in range(16)))
    for moment in moments:
        await moment.wait()
        await running.kill()
        running = await start(url, port)
    await clients
    await running.kill()
    assert broken > 0
    assert await numbers(url) == list(range(KEYS))
