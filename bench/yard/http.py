"""Requests over kept connections: a server in a process of its own, and a generator of load that does little else."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import cast
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI
from starlette.responses import Response

from bench.contender import Outcome
from bench.yard.workload import GROUPS, run
from jobyard.config.sections import ServerSection
from jobyard.config.store_factory import make_store
from jobyard.operations.job_factory import JobFactory
from jobyard.server.bootstrap import bootstrap_access
from jobyard.server.server import Server, listen, url_of

CONNECTIONS = 64
WARM_UP = 500
PATH = "/v1/jobs"
# One token sends it all.
UNHURRIED = ServerSection(requests_per_second=1e9, request_burst=1_000_000_000)


async def _serve_jobyard(url: str, pipe: Connection) -> None:
    """As `jobyard server` does: tokens, limits on the wire, security headers."""
    store = make_store(url)
    await store.open()
    listener = listen("127.0.0.1", 0)
    way_in = await bootstrap_access(store, listener, UNHURRIED, insecure=False)
    server = Server(store, JobFactory(), way_in, UNHURRIED)
    serving = asyncio.ensure_future(server.run(listener))
    pipe.send((url_of(listener), way_in.first_token))
    await asyncio.to_thread(pipe.recv)
    server.stop()
    await serving
    await store.close()


async def _serve_bare(_: str, pipe: Connection) -> None:
    """The least that FastAPI can do with a request: a route that answers 202."""
    app = FastAPI()

    @app.post(PATH, status_code=202)
    async def accept() -> Response:
        return Response(status_code=202)

    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, loop="none", http="httptools", access_log=False, log_config=None))
    serving = asyncio.ensure_future(server.serve([listener]))
    pipe.send((url_of(listener), "none"))
    await asyncio.to_thread(pipe.recv)
    server.should_exit = True
    await serving


def _process(is_bare: bool, url: str, pipe: Connection) -> None:
    run((_serve_bare if is_bare else _serve_jobyard)(url, pipe))


@contextmanager
def serving(url: str, *, is_bare: bool = False) -> Iterator[tuple[str, str]]:
    """Its address and a token."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_process, args=(is_bare, url, there))
    process.start()
    try:
        yield here.recv()
    finally:
        here.send("stop")
        process.join()


class Caller(asyncio.Protocol):
    """One connection: the next request as soon as the answer is here."""

    def __init__(
        self, requests: list[bytes], take: Callable[[], int | None], took: Callable[[float], None], status: int = 202
    ) -> None:
        self._requests = requests
        self._take = take
        self._took = took
        self._first_line = b"HTTP/1.1 %d" % status
        self._sent = 0.0
        self._received = b""
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._send()

    def _send(self) -> None:
        number = self._take()
        if number is None:
            self.done.set_result(None)
            self._transport.close()
            return
        self._sent = time.perf_counter()
        self._transport.write(self._requests[number % len(self._requests)])

    def data_received(self, data: bytes) -> None:
        received = self._received + data
        head, found, body = received.partition(b"\r\n\r\n")
        if not found or len(body) < _length(head):
            self._received = received
            return
        self._received = b""
        if not head.startswith(self._first_line):
            self.done.set_exception(AssertionError(received))
            self._transport.close()
            return
        self._took(time.perf_counter() - self._sent)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the server closed the connection"))


def _length(head: bytes) -> int:
    """
    >>> _length(b"HTTP/1.1 202 JobAccepted\\r\\nContent-Length: 12"), _length(b"HTTP/1.1 204 No Content")
    (12, 0)
    """
    start = head.lower().find(b"content-length:")
    return int(head[start + 15 :].split(b"\r\n", 1)[0]) if start >= 0 else 0


async def load(url: str, bodies: list[bytes], requests: int, status: int = 202) -> tuple[float, list[float]]:
    """Send that many requests, these in turn; the seconds of all, and of each."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    host, port = parts.hostname, parts.port
    numbers = iter(range(requests))
    times: list[float] = []
    loop = asyncio.get_running_loop()
    take, took = (lambda: next(numbers, None)), times.append
    started = time.perf_counter()
    made = [
        await loop.create_connection(lambda: Caller(bodies, take, took, status), host, port) for _ in range(CONNECTIONS)
    ]
    await asyncio.gather(*(caller.done for _, caller in made))
    return time.perf_counter() - started, times


def _request(token: str, group: str) -> bytes:
    body = f'{{"kind":"noop","payload":{{"to":"somebody@example.com"}},"queue":"bench","group":"{group}"}}'.encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def post(url: str, jobs: int, *, is_bare: bool = False) -> Outcome:
    with serving(url, is_bare=is_bare) as (address, token):

        async def main() -> tuple[float, list[float]]:
            bodies = [_request(token, group) for group in GROUPS]
            await load(address, bodies, WARM_UP)
            return await load(address, bodies, jobs)

        elapsed, times = run(main())
    return outcome(jobs, elapsed, times)


def outcome(jobs: int, elapsed: float, times: list[float]) -> Outcome:
    times.sort()
    return Outcome(
        {
            "jobs_per_second": jobs / elapsed,
            "p50_ms": times[len(times) // 2] * 1000,
            "p99_ms": times[len(times) * 99 // 100] * 1000,
        }
    )
