"""Fixtures and helpers of the Redis tests."""

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
    return {key.decode() for key in await store.client.execute("KEYS", "*")}


async def wait_for_count(store: RedisStore, *words: str, at_least: int = 1) -> None:
    """Poll a counting command: Redis sends no signal when another client registers as waiting."""
    while await store.client.execute(*words) < at_least:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def wait_until_disconnected(server: RedisServer) -> None:
    """Poll: the server notices some time later that a client closed its connection."""
    while server.connections():  # noqa: ASYNC110
        await asyncio.sleep(0.001)
