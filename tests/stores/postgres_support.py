"""Fixtures: a new schema for each test, dropped afterwards, and a store in it."""

from __future__ import annotations

import multiprocessing
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from multiprocessing.context import ForkServerContext
from typing import Any

import asyncpg
import pytest
from tests.servers import shared
from tests.servers.schema import reused_schema
from tests.support import eventually

from jobyard.domain.lease import Lease
from jobyard.domain.outcome import Done, Outcome
from jobyard.domain.state import Settlement, judge
from jobyard.ports.job_store import Exchange
from jobyard.ports.store import Store
from jobyard.stores.postgres import PostgresStore


def warm_processes(module: str) -> ForkServerContext:
    """Processes forked from one that has loaded the module: loading it is most of what a new one does."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "jobyard.stores.postgres", module])
    return context


@asynccontextmanager
async def new_schema(url: str) -> AsyncIterator[str]:
    schema = f"{shared.RUN}_{secrets.token_hex(3)}"
    try:
        yield schema
    finally:
        connection = await asyncpg.connect(url)
        await connection.execute(f"SET client_min_messages = warning; DROP SCHEMA IF EXISTS {schema} CASCADE")
        await connection.close()


@asynccontextmanager
async def opened(url: str, schema: str, **options: Any) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, schema=schema, **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def schema(postgres_url: str) -> AsyncIterator[str]:
    async with new_schema(postgres_url) as schema:
        yield schema


@pytest.fixture
def used_schema(postgres_url: str) -> Iterator[str]:
    """Empty; earlier tests have used its tables."""
    with reused_schema(postgres_url) as schema:
        yield schema


@pytest.fixture
async def store(postgres_url: str, schema: str) -> AsyncIterator[PostgresStore]:
    async with opened(postgres_url, schema) as store:
        yield store


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def until_blocking(connection: Any) -> None:
    """Return once another session waits for a lock of this one."""
    # Not pg_stat_activity: its list of sessions does not change within a transaction.
    blocked = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    await eventually(lambda: connection.fetchval(blocked))


def done(lease: Lease, outcome: Outcome | None = None) -> Settlement:
    return Settlement(lease.key, judge(lease, outcome or Done(), worker="w"))


async def exchange(
    store: Store, wanted: int, settlements: Sequence[Settlement] = (), queues: Sequence[str] = ("default",)
) -> Exchange:
    return await store.exchange("w", settlements, queues, wanted, 30.0)
