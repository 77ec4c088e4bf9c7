"""A longer way to the server: the tests' proxy, in a process of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from urllib.parse import urlsplit

from tests.servers.proxy import Proxy


def _carry(port: int, seconds: float, pipe: Connection) -> None:
    with Proxy(port, latency_seconds=seconds) as proxy:
        pipe.send(proxy.port)
        pipe.recv()


@contextmanager
def slowed(url: str, seconds: float) -> Iterator[str]:
    """The same server, that many seconds further away there and back."""
    port = urlsplit(url).port
    assert port is not None
    here, there = multiprocessing.Pipe()
    # Apart from the worker: the two would take turns at one interpreter.
    process = multiprocessing.get_context("spawn").Process(target=_carry, args=(port, seconds, there))
    process.start()
    try:
        yield url.replace(f":{port}", f":{here.recv()}")
    finally:
        here.send("stop")
        process.join()
