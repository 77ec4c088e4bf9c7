"""Short words for what the Redis tests do all the time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.servers import RedisServer
from tests.servers.absent import Absent
from tests.servers.fixtures import absent

from jobyard.domain.job import NewJob
from jobyard.stores.redis import RedisStore


@contextmanager
def running(**options: Any) -> Iterator[RedisServer]:
    try:
        server = RedisServer(**options)
    except Absent as error:
        absent(error)
    with server:
        yield server


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with running() as server:
        yield server


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[RedisStore]:
    server.ask("FLUSHALL")
    store = RedisStore(server.url)
    await store.open()
    yield store
    await store.close()


def jobs(*ids: str, **options: Any) -> list[NewJob]:
    return [NewJob(id=job_id, kind="k", **options) for job_id in ids]


async def keys(store: RedisStore) -> set[str]:
    return {key.decode() for key in await store._server.ask("KEYS", "*")}


async def until_there(store: RedisStore, *words: str, at_least: int = 1) -> None:
    """Others' sleep shows on the server, which sends no signal of it."""
    while await store._server.ask(*words) < at_least:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def alone(server: RedisServer) -> None:
    """A server notices in its own time that a connection is closed."""
    while server.connections():  # noqa: ASYNC110
        await asyncio.sleep(0.001)
