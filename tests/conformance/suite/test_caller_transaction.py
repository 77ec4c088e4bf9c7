"""The caller's own transaction: what is refused there leaves nothing behind, and what the caller did stays."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from tests.conformance.support import configure, get_job, insert_one, new, queue_info, running, settlement

from jobyard.domain.job import Parent, State
from jobyard.domain.outcome import Done, Failed
from jobyard.errors import BadInput, LeaseLost, QueueFull
from jobyard.ports.store import Store
from jobyard.stores.postgres import PostgresStore
from jobyard.stores.sqlite import SqliteStore

pytestmark = pytest.mark.parametrize("store", ["sqlite", "postgres", "pgbouncer"], indirect=True)


@asynccontextmanager
async def transaction_of(store: Store) -> AsyncIterator[Any]:
    """A transaction on a connection of the caller's own, committed at the end of the block."""
    if isinstance(store, SqliteStore):
        connection = sqlite3.connect(store.path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")
        connection.close()
    else:
        assert isinstance(store, PostgresStore)
        mine = await asyncpg.connect(store._connection._full_url, statement_cache_size=0)
        async with mine.transaction():
            yield mine
        await mine.close()


async def test_a_refused_insert_leaves_no_counts_and_keeps_the_callers_work(store: Store) -> None:
    await configure(store, "small", max_waiting=1)
    known = await insert_one(store, queue="small")
    async with transaction_of(store) as transaction:
        await store.insert([new(group="a")], transaction)
        with pytest.raises(QueueFull):
            await store.insert([new(group="b"), new(queue="small")], transaction)
        with pytest.raises(BadInput):
            await store.insert([new(group="c"), new(id=known)], transaction)
    assert ((await queue_info(store)).waiting, (await queue_info(store, "small")).waiting) == (1, 1)
    assert [group.name for group in await store.groups("default") if group.waiting] == ["a"]
    assert await store.audit() == []


async def test_a_refused_settlement_leaves_no_counts_and_keeps_the_callers_work(store: Store) -> None:
    lost, held = await running(store), await running(store)
    await store.exchange("worker-1", [settlement(lost, Failed(message="no", retry=False))], ["default"], 0, 15)
    async with transaction_of(store) as transaction:
        await store.settle(settlement(held, Done()), transaction)
        with pytest.raises(LeaseLost):
            await store.settle(settlement(lost, Done()), transaction)
    states = [(await get_job(store, lease.job_id)).state for lease in (lost, held)]
    assert states == [State.FAILED, State.COMPLETED]
    info = await queue_info(store)
    assert (info.running, info.completed, info.failed) == (0, 1, 1)
    assert await store.audit() == []


async def test_the_end_of_a_child_is_recorded_if_the_caller_commits(store: Store) -> None:
    parent = Parent("the parent", "1:scan", "7")
    lease = await running(store, parent=parent)
    async with transaction_of(store) as transaction:
        await store.settle(settlement(lease, Done(b"1")), transaction)
        assert await store.ended_jobs() == []
    [ended] = await store.ended_jobs()
    assert (ended.job_id, ended.state, ended.parent, ended.result) == (lease.job_id, State.COMPLETED, parent, b"1")


async def test_a_child_is_inserted_once_in_the_callers_transaction(store: Store) -> None:
    child = new(parent=Parent("the parent", "1:scan", "7"))
    async with transaction_of(store) as transaction:
        [first] = await store.insert([child], transaction)
        [second] = await store.insert([child], transaction)
    assert (first.created, second.created, second.id) == (True, False, child.id)
    assert (await get_job(store, child.id)).parent_id == "the parent"
