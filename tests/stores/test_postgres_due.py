"""Many delayed jobs that fall due at once: the work of each call is bounded, and reading counts locks nothing."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.conformance.support import WORKER, new
from tests.stores.postgres_support import connection, schema

from jobyard.stores.postgres import PostgresStore
from jobyard.stores.postgres.codec import ExchangeArguments, milliseconds
from jobyard.stores.postgres.settle import SettlementBatch
from jobyard.stores.postgres.statements import Statements
from jobyard.testing.clock import ManualClock

__all__ = ["connection", "schema"]

FEW, MANY, GROUPS = 1_500, 200_000 if os.environ.get("JOBYARD_SOAK") else 6_000, 3
DELAY_SECONDS = 60


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(postgres_url: str, schema: str, clock: ManualClock) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url, clock=clock, schema=schema, connections=3)
    await store.open()
    yield store
    assert await store.audit() == []
    await store.close()


async def insert_due(store: PostgresStore, clock: ManualClock, queue: str, count: int) -> None:
    """All become due at the same instant."""
    jobs = [new(queue=queue, group=f"g{number % GROUPS}", delay_seconds=DELAY_SECONDS) for number in range(count)]
    await store.insert(jobs)
    await store.exchange(WORKER, [], [queue], 0, 30)
    clock.advance(DELAY_SECONDS)


async def pages(connection: Any, schema: str, clock: ManualClock, queue: str) -> int:
    """The number of pages that one exchange reads."""
    arguments = ExchangeArguments(
        clock.now(), "w", "token", [queue], 10, milliseconds(30), **SettlementBatch([]).columns()
    )
    statement = Statements(schema)["exchange"]
    [[plan]] = await connection.fetch(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", *arguments)
    buffers = json.loads(plan)[0]["Plan"]
    return int(buffers["Shared Hit Blocks"] + buffers["Shared Read Blocks"])


async def test_the_cost_of_an_exchange_does_not_grow_with_what_is_due(
    store: PostgresStore, schema: str, connection: Any, clock: ManualClock
) -> None:
    await insert_due(store, clock, "warm", 100)
    await pages(connection, schema, clock, "warm")  # reads the catalog
    await insert_due(store, clock, "few", FEW)
    await insert_due(store, clock, "many", MANY)
    few = await pages(connection, schema, clock, "few")
    many = [await pages(connection, schema, clock, "many") for _ in range(4)]
    assert max(many) < 1.5 * few, (few, many)


async def test_counts_are_read_without_folding_or_locking(
    store: PostgresStore, schema: str, connection: Any, clock: ManualClock
) -> None:
    await insert_due(store, clock, "q", FEW)
    await store.insert([new(queue="q", group="fresh"), new(queue="q", group="later", delay_seconds=1)])
    async with connection.transaction():
        await connection.execute(f"LOCK TABLE {schema}.jobyard_queue, {schema}.jobyard_group IN SHARE MODE")
        async with asyncio.timeout(60):
            [queue] = await store.queues()
            groups = await store.groups("q")
            [ages] = await store.ages()
    assert (queue.waiting, queue.delayed) == (FEW + 1, 1)
    assert [(group.name, group.waiting, group.delayed) for group in groups] == [
        ("fresh", 1, 0),
        *((f"g{number}", FEW // GROUPS, 0) for number in range(GROUPS)),
        ("later", 0, 1),
    ]
    assert [group.name for group in await store.groups("q", 2, "fresh")] == ["g0", "g1"]
    assert ages.waiting_since == clock.now()


async def test_prune_folds_in_a_part_and_the_next_claims_the_rest(
    store: PostgresStore, schema: str, connection: Any, clock: ManualClock
) -> None:
    await insert_due(store, clock, "q", FEW)
    await store.prune()
    left = await connection.fetchval(f"SELECT count(*) FROM {schema}.jobyard_delayed")
    assert 0 < left < FEW
    claimed = 0
    while leases := (await store.exchange(WORKER, [], ["q"], 700, 30)).leases:
        claimed += len(leases)
    assert claimed == FEW


async def test_a_claim_of_all_queues_is_bounded_too(
    store: PostgresStore, schema: str, connection: Any, clock: ManualClock
) -> None:
    for queue in "abcdef":
        await insert_due(store, clock, queue, 400)
    leases = (await store.exchange(WORKER, [], [], 12, 30)).leases
    assert sorted(lease.queue for lease in leases) == sorted("abcdef" * 2)
    left = await connection.fetch(f"SELECT count(*) FROM {schema}.jobyard_delayed GROUP BY queue")
    assert all(row[0] > 100 for row in left), left


async def test_a_claim_of_very_many_queues_is_bounded_and_reaches_all(
    store: PostgresStore, schema: str, connection: Any, clock: ManualClock
) -> None:
    names = [f"q{number}" for number in range(250)]
    await store.insert([new(queue=name, delay_seconds=DELAY_SECONDS) for name in names])
    clock.advance(DELAY_SECONDS)
    claimed = [lease.queue for lease in (await store.exchange(WORKER, [], [], 10, 30)).leases]
    assert len(claimed) == 10
    assert await connection.fetchval(f"SELECT count(*) FROM {schema}.jobyard_delayed") > 0
    while leases := (await store.exchange(WORKER, [], [], 100, 30)).leases:
        claimed += [lease.queue for lease in leases]
    assert sorted(claimed) == sorted(names)
