"""Ticks on PostgreSQL: concurrent schedulers neither deadlock nor fail, and the cost of a tick does not grow."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest
from tests.conformance.support import armed, decide_one, fired, new, tick
from tests.stores.postgres_support import connection, done, new_schema, opened, schema, store, until_blocking
from tests.story.sizes import size
from tests.support import eventually

from jobyard.domain.job import QueueSettings, Unique
from jobyard.domain.schedule import Verdict
from jobyard.domain.state import Settlement
from jobyard.ports.schedule_store import KEPT_TICKS, ArmedSchedule, Decided, Decision, Tick
from jobyard.stores.postgres import PostgresStore
from jobyard.stores.postgres.listen_notify import NotificationSender
from jobyard.stores.postgres.pool import Pool
from jobyard.stores.postgres.schedules import tick_columns
from jobyard.stores.postgres.statements import Statements

__all__ = ["connection", "schema", "store"]

SCHEDULES, ROUNDS, SCHEDULERS = 40, 12, 3
PAUSED = 1_726_493  # an advisory lock of this module
QUEUES = ("a", "b", "c")  # the first two limit what may wait
MANY, HISTORY = size(10_000, 50_000), 10
# Many schedules with some history each, and one whose history is full.
PAST = """
INSERT INTO {schema}.jobyard_armed (schedule, revision, decided_until, kept)
  SELECT 'past-' || i, 1, {history}, {history} FROM generate_series(1, {many}) i;
INSERT INTO {schema}.jobyard_tick (schedule, at, verdict, first, count, decided_at)
  SELECT 'past-' || i, at, 'missed', at, 1, at FROM generate_series(1, {many}) i, generate_series(1, {history}) at;
"""


def names(count: int) -> list[str]:
    return [f"schedule-{number:04}" for number in range(count)]


async def arm_all(store: PostgresStore, count: int) -> list[str]:
    await asyncio.gather(*(store.arm(name, 1, since=0) for name in names(count)))
    return names(count)


def due(at: int, shuffled: random.Random) -> list[Tick]:
    """Ticks of most schedules, in random order and queues."""
    return [
        tick(at, new(queue=shuffled.choice(QUEUES), group="g", unique=Unique(name)), schedule=name, skip_if_held=True)
        for name in shuffled.sample(names(SCHEDULES), SCHEDULES - 5)
    ]


async def decide_all(store: PostgresStore, seed: int) -> list[tuple[str, int, Decided]]:
    shuffled = random.Random(seed)
    made: list[tuple[str, int, Decided]] = []
    for at in range(1, ROUNDS + 1):
        ticks = due(at, shuffled)
        responses = await store.decide(ticks)
        made += [
            (each.schedule, each.at, response)
            for each, response in zip(ticks, responses, strict=True)
            if response.decision is Decision.MADE
        ]
    return made


async def insert_beside(store: PostgresStore, over: asyncio.Event) -> None:
    while not over.is_set():
        await store.insert([new(queue=queue, group="g") for queue in ("b", "a", "c")])


async def work_beside(store: PostgresStore, over: asyncio.Event) -> Counter[str]:
    """Completed jobs free their keys, and exchanges lock the queues."""
    taken: Counter[str] = Counter()
    settlements: list[Settlement] = []
    while True:
        leases = (await store.exchange("w", settlements, (), 30, 30.0)).leases
        taken.update(lease.job_id for lease in leases)
        settlements = [done(lease) for lease in leases]
        if over.is_set() and not leases:
            return taken


@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
async def test_concurrent_schedulers_neither_deadlock_nor_fail(
    postgres_url: str, pgbouncer_url: str, pooled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only a locked row is retried, so that a deadlock or a serialization failure fails the test.
    monkeypatch.setattr("jobyard.stores.postgres.pool.RETRYABLE", {"55P03"})
    url = pgbouncer_url if pooled else postgres_url
    async with AsyncExitStack() as stack:
        schema = await stack.enter_async_context(new_schema(postgres_url))
        handles = [
            await stack.enter_async_context(opened(url, schema, pooled=pooled, connections=4))
            for _ in range(SCHEDULERS + 1)
        ]
        for queue in QUEUES[:2]:
            await handles[0].configure(queue, QueueSettings(max_waiting=100_000, max_waiting_per_group=100_000))
        await arm_all(handles[0], SCHEDULES)
        over = asyncio.Event()
        inserting = asyncio.create_task(insert_beside(handles[-1], over))
        working = asyncio.create_task(work_beside(handles[-1], over))
        found = await asyncio.gather(*(decide_all(store, seed) for seed, store in enumerate(handles[:-1])))
        over.set()
        await inserting
        taken = await working

        made = [each for some in found for each in some]
        assert len({(name, at) for name, at, _ in made}) == len(made)
        recorded = [
            (name, each.at, Decided(Decision.MADE, each.verdict, each.job_id))
            for name in names(SCHEDULES)
            for each in await handles[0].ticks(name)
        ]
        assert sorted(recorded, key=str) == sorted(made, key=str)
        jobs = [response.job_id for _, _, response in made if response.verdict is Verdict.FIRED]
        assert len(jobs) >= SCHEDULES
        assert {taken[job_id] for job_id in jobs if job_id} == {1}
        assert await handles[0].audit() == []


async def test_schedules_are_locked_in_the_order_of_their_names(
    schema: str, store: PostgresStore, connection: Any
) -> None:
    await asyncio.gather(*(store.arm(name, 1, since=0) for name in ("a", "b", "c")))
    lock = f"SELECT FROM {schema}.jobyard_armed WHERE schedule = $1 FOR NO KEY UPDATE"
    async with connection.transaction():
        await connection.execute(lock, "b")
        deciding = asyncio.create_task(store.decide([tick(1000, schedule=name) for name in ("c", "b", "a")]))
        await until_blocking(connection)
        free = [bool(await connection.fetch(f"{lock} SKIP LOCKED", name)) for name in ("a", "c")]
        assert free == [False, True]
    assert {response.decision for response in await deciding} == {Decision.MADE}


async def test_max_waiting_is_exact_with_concurrent_schedulers(
    postgres_url: str, schema: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobyard.stores.postgres.pool.RETRYABLE", {"55P03"})
    await store.configure("default", QueueSettings(max_waiting=50))
    all_names = await arm_all(store, 60)
    async with opened(postgres_url, schema) as other:
        calls = [
            handle.decide([tick(1000, schedule=name), tick(2000, schedule=name)])
            for name in all_names
            for handle in (store, other)
        ]
        found = Counter(response.decision for responses in await asyncio.gather(*calls) for response in responses)
    assert found[Decision.MADE] == (await store.queues())[0].waiting == 50
    assert found[Decision.FULL] > 0
    assert set(found) <= {Decision.MADE, Decision.KNOWN, Decision.FULL}
    assert await store.audit() == []


async def test_a_key_in_an_open_transaction_is_waited_for(store: PostgresStore, connection: Any) -> None:
    await store.arm("nightly", 1, since=0)
    holder = new(unique=Unique("key"))
    transaction = connection.transaction()
    await transaction.start()
    await store.insert([holder], transaction=connection)
    deciding = asyncio.create_task(decide_one(store, 1000, new(unique=Unique("key")), skip_if_held=True))
    await until_blocking(connection)
    assert not deciding.done()
    await transaction.commit()
    assert await deciding == Decided(Decision.MADE, Verdict.SKIPPED, holder.id)
    assert (await store.queues())[0].waiting == 1


async def test_a_queue_filled_by_a_concurrent_transaction_is_full(
    postgres_url: str, schema: str, store: PostgresStore, connection: Any
) -> None:
    """A caller's transaction does not lock the queue: it may commit after the limit was checked."""
    await store.configure("default", QueueSettings(max_waiting=1))
    await store.arm("nightly", 1, since=0)
    prefix = f"{schema}.jobyard"
    await connection.execute(f"""
        CREATE FUNCTION {prefix}_pause() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          PERFORM pg_advisory_xact_lock({PAUSED});
          RETURN NEW;
        END $$;
        CREATE TRIGGER pause BEFORE INSERT ON {prefix}_unique FOR EACH ROW EXECUTE FUNCTION {prefix}_pause()""")
    other = await asyncpg.connect(postgres_url)
    transaction = other.transaction()
    await transaction.start()
    await other.execute(f"SELECT pg_advisory_xact_lock({PAUSED})")
    await store.insert([new()], transaction=other)
    deciding = asyncio.create_task(decide_one(store, 1000, new(unique=Unique("key"))))
    paused = f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = {PAUSED} AND NOT granted"
    await eventually(lambda: connection.fetchval(paused))
    await transaction.commit()
    await other.close()
    assert await deciding == Decided(Decision.FULL)
    assert await armed(store) == ArmedSchedule("nightly", 1, 0)
    assert await store.audit() == []


async def test_a_frozen_client_keeps_schedules_locked_for_seconds_at_most(
    schema: str, store: PostgresStore, connection: Any
) -> None:
    """Behind a pooler the commit is a separate trip."""
    await store.arm("nightly", 1, since=0)
    ticks, jobs = tick_columns([tick(1000, verdict=Verdict.MISSED)])
    async with connection.transaction():
        await connection.fetch(Statements(schema)["decide"], None, *ticks, *jobs)
        assert await connection.fetchval("SHOW idle_in_transaction_session_timeout") == "5s"


async def test_a_thousand_ticks_are_one_trip(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    all_names = await arm_all(store, 1000)
    jobs = [new(unique=Unique(name), tags=(name,)) for name in all_names]
    ticks = [tick(7, job, schedule=name, skip_if_held=True) for name, job in zip(all_names, jobs, strict=True)]
    trips = 0
    run_once = Pool.run_once

    async def counted(self: Pool, *arguments: Any) -> Any:
        nonlocal trips
        trips += 1
        return await run_once(self, *arguments)

    monkeypatch.setattr(Pool, "run_once", counted)
    # The notification is a separate trip.
    monkeypatch.setattr(NotificationSender, "send", lambda self, kind: None)
    assert await store.decide(ticks) == [fired(job.id) for job in jobs]
    assert trips == 1


async def pages(connection: Any, store: PostgresStore, schema: str, at: int) -> int:
    """The number of pages read to decide a tick with a job."""
    ticks, jobs = tick_columns([tick(at, new(unique=Unique(f"at {at}"), tags=("t",)), skip_if_held=True)])
    statement = Statements(schema)["decide"]
    [[plan]] = await connection.fetch(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", None, *ticks, *jobs)
    buffers = json.loads(plan)[0]["Plan"]
    assert (await store.ticks("nightly", limit=1))[0].at == at
    return int(buffers["Shared Hit Blocks"] + buffers["Shared Read Blocks"])


async def costs(connection: Any, store: PostgresStore, schema: str, start: int = 1000) -> list[int]:
    await store.arm("nightly", 1, since=0)
    await store.decide([tick(start + number, verdict=Verdict.MISSED) for number in range(3 * KEPT_TICKS)])
    found = [await pages(connection, store, schema, start + 500 + number) for number in range(10)]
    return found[3:]  # the first ones read the catalog


async def test_the_cost_of_a_tick_does_not_grow(schema: str, store: PostgresStore, connection: Any) -> None:
    """Measured in pages. An index of a thousand times as many rows is a level or two deeper."""
    # Plans are made, and cached, while statistics say that the tables are almost empty.
    await store.arm("nightly", 1, since=0)
    await connection.execute(f"VACUUM ANALYZE {schema}.jobyard_armed, {schema}.jobyard_tick")
    few = await costs(connection, store, schema)
    await connection.execute(PAST.format(schema=schema, many=MANY, history=HISTORY), timeout=300)
    many = await costs(connection, store, schema, 2000)
    assert max(many) < max(few) + 30, (few, many)
    await connection.execute(f"ANALYZE {schema}.jobyard_armed, {schema}.jobyard_tick")
    again = await costs(connection, store, schema, 3000)
    assert max(again) < max(few) + 30, (few, again)
    assert await store.audit() == []


async def test_deleted_ticks_are_not_scanned(
    postgres_url: str, schema: str, store: PostgresStore, connection: Any
) -> None:
    """Even while an old snapshot keeps their dead rows."""
    few = await costs(connection, store, schema)
    old = await asyncpg.connect(postgres_url)
    async with old.transaction(isolation="repeatable_read"):
        await old.fetchval("SELECT count(*) FROM pg_class")
        for start in range(2000, 12_000, 1000):
            await store.decide([tick(start + number, verdict=Verdict.MISSED) for number in range(1000)])
        many = [await pages(connection, store, schema, 20_000 + number) for number in range(5)]
    await old.close()
    assert max(many) < max(few) + 30, (few, many)


async def test_a_reader_of_a_log_misses_no_entry(schema: str, store: PostgresStore, connection: Any) -> None:
    """When a number is visible, all before it are, even with uncommitted appends."""
    statement = Statements(schema)["append_log"]
    transaction = connection.transaction()
    await transaction.start()
    assert await connection.fetchval(statement, None, "changes", b"first") == 1
    second = asyncio.create_task(store.append("changes", b"second"))
    await until_blocking(connection)
    assert await store.read("changes") == []
    assert not second.done()
    assert await store.append("others", b"not blocked") == 1
    await transaction.commit()
    assert await second == 2
    assert [(entry.number, entry.data) for entry in await store.read("changes")] == [(1, b"first"), (2, b"second")]


async def test_reading_a_log_during_concurrent_appends(store: PostgresStore) -> None:
    async def write() -> None:
        for _ in range(25):
            await store.append("changes", b"x")

    writing = asyncio.gather(*(write() for _ in range(6)))
    seen: list[int] = []
    while len(seen) < 150:
        seen += [entry.number for entry in await store.read("changes", after=seen[-1] if seen else 0, limit=7)]
        assert not writing.done() or not writing.exception()
    assert seen == list(range(1, 151))


@pytest.mark.parametrize(
    "fault",
    [
        "DELETE FROM {schema}.jobyard_armed",
        "UPDATE {schema}.jobyard_armed SET decided_until = 999",
        "UPDATE {schema}.jobyard_armed SET kept = kept + 1",
        "UPDATE {schema}.jobyard_armed SET kept_from = 1001",
        "DELETE FROM {schema}.jobyard_log_end",
        "UPDATE {schema}.jobyard_log_end SET number = 0",
    ],
)
async def test_the_audit_finds_a_planted_fault(schema: str, store: PostgresStore, connection: Any, fault: str) -> None:
    await store.arm("nightly", 1, since=0)
    await decide_one(store, 1000)
    await store.append("changes", b"x")
    assert await store.audit() == []
    await connection.execute(Statements(schema).qualify(fault))
    assert len(await store.audit()) == 1
