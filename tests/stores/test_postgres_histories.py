"""Histories under concurrency, in callers' own transactions, after a migration, and at size."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import pytest
from tests.conformance.support import get_job, new
from tests.stores.postgres_support import (
    connection,
    done,
    exchange,
    new_schema,
    opened,
    schema,
    store,
    until_blocking,
)

from jobyard.domain.history import Delivery, HistoryEntry, Wake, signal_scope
from jobyard.domain.job import Parent, QueueSettings, State
from jobyard.domain.lease import Lease
from jobyard.domain.outcome import Failed, Park
from jobyard.ports.workflow_store import Checkpoint, Restart
from jobyard.stores.postgres import PostgresStore
from jobyard.stores.postgres.histories import checkpoint_columns
from jobyard.stores.postgres.schema import script
from jobyard.stores.postgres.statements import Statements, migrations

__all__ = ["connection", "schema", "store"]

PARENT = Parent("the parent", "1:scan", "7")


async def running(store: PostgresStore, lease_seconds: float = 30.0, **options: Any) -> Lease:
    await store.insert([new(**options)])
    [lease] = (await store.exchange("w", (), ["default"], 1, lease_seconds)).leases
    return lease


def checkpoint(lease: Lease, *keys: str, data: bytes = b"", restart: Restart | None = None) -> Checkpoint:
    entries = tuple(HistoryEntry(key=key, data=data) for key in keys)
    return Checkpoint(key=lease.key, entries=entries, restart=restart)


async def keys(store: PostgresStore, job_id: str, scope: str = "") -> list[str]:
    return [entry.key for entry in await store.history(job_id, scope)]


# Fencing


async def test_a_reclaim_does_not_end_a_lease_under_a_checkpoint(
    store: PostgresStore, schema: str, connection: Any
) -> None:
    lease = await running(store, lease_seconds=0.0, is_workflow=True)
    async with connection.transaction():
        columns = checkpoint_columns([checkpoint(lease, "a")])
        await connection.fetch(Statements(schema)["checkpoint"], None, *columns)
        assert await store.reclaim() == []
    assert await keys(store, lease.job_id) == ["a"]
    assert [each.job_id for each in await store.reclaim()] == [lease.job_id]
    assert await store.checkpoint([checkpoint(lease, "b")]) == [None]
    assert await keys(store, lease.job_id) == ["a"]
    assert await store.audit() == []


async def test_a_renewal_and_a_cancel_do_not_wait_for_a_checkpoint(
    store: PostgresStore, schema: str, connection: Any
) -> None:
    lease = await running(store, is_workflow=True)
    async with connection.transaction():
        columns = checkpoint_columns([checkpoint(lease, "a")])
        await connection.fetch(Statements(schema)["checkpoint"], None, *columns)
        async with asyncio.timeout(60):
            assert (await store.extend("w", [lease.key], 60.0)).lost == ()
            assert (await exchange(store, 1)).leases == ()


async def test_a_checkpoint_waits_for_the_end_in_an_open_transaction(store: PostgresStore, connection: Any) -> None:
    ended, lease = await running(store, is_workflow=True), await running(store, is_workflow=True)
    async with connection.transaction():
        await store.settle(done(ended), connection)
        recording = asyncio.create_task(store.checkpoint([checkpoint(lease, "a"), checkpoint(ended, "a")]))
        await until_blocking(connection)
        assert not recording.done()
    [held, lost] = await recording
    assert held is not None
    assert lost is None
    assert await keys(store, lease.job_id) == ["a"]
    assert await keys(store, ended.job_id) == []


async def test_concurrent_writers_of_one_history(store: PostgresStore) -> None:
    """Each key is written once, and a reader of what is delivered misses nothing."""
    leases = [await running(store, is_workflow=True) for _ in range(3)]
    told: dict[tuple[str, str], set[tuple[int, bytes]]] = {}

    async def record(number: int) -> None:
        order = leases if number % 2 else leases[::-1]
        recorded = await store.checkpoint(
            [checkpoint(lease, f"{number % 10}", "shared", data=b"%d" % number) for lease in order]
        )
        for lease, entries in zip(order, recorded, strict=True):
            assert entries is not None
            for entry in entries:
                told.setdefault((lease.job_id, entry.key), set()).add((entry.number, entry.data))

    async def deliver(number: int) -> None:
        deliveries = [Delivery(lease.job_id, "kids", str(number % 7), b"1") for lease in leases]
        await store.deliver(deliveries if number % 2 else deliveries[::-1])

    async def read(seen: list[str]) -> None:
        last = 0
        while len(seen) < 7:
            for entry in await store.history(leases[0].job_id, "kids", after=last):
                seen.append(entry.key)
                last = entry.number

    readers: list[list[str]] = [[], [], []]
    reading = asyncio.gather(*map(read, readers))
    for start in range(0, 20, 5):
        calls = [call(number) for number in range(start, start + 5) for call in (record, deliver)]
        await asyncio.gather(*calls)
    async with asyncio.timeout(60):
        await reading
    assert [sorted(seen) for seen in readers] == [[str(number) for number in range(7)]] * 3
    expected = sorted([*map(str, range(10)), "shared"])
    for lease in leases:
        entries = await store.history(lease.job_id)
        assert sorted(entry.key for entry in entries) == expected
        assert sorted(await keys(store, lease.job_id, "kids")) == [str(number) for number in range(7)]
        # Every writer was told the same entry: the one that stays.
        for entry in entries:
            assert told[lease.job_id, entry.key] == {(entry.number, entry.data)}
    assert await store.audit() == []


@pytest.mark.parametrize("first_commits", [True, False])
async def test_a_repeated_checkpoint_waits_for_the_first(
    store: PostgresStore, schema: str, connection: Any, first_commits: bool
) -> None:
    """As after an outage: the server has not ended the first call when the worker repeats it."""
    lease = await running(store, is_workflow=True)
    await store.checkpoint([checkpoint(lease, "began")])  # later ones lock nothing but their keys
    transaction = connection.transaction()
    await transaction.start()
    await connection.fetch(
        Statements(schema)["checkpoint"], None, *checkpoint_columns([checkpoint(lease, "a", "b", data=b"first")])
    )
    repeating = asyncio.create_task(store.checkpoint([checkpoint(lease, "a", "c", data=b"second")]))
    await until_blocking(connection)
    assert not repeating.done()
    await (transaction.commit() if first_commits else transaction.rollback())
    [recorded] = await repeating
    assert recorded is not None
    stored = await store.history(lease.job_id)
    kept = {"a": b"first", "b": b"first", "c": b"second"} if first_commits else {"a": b"second", "c": b"second"}
    assert {entry.key: entry.data for entry in stored} == {"began": b""} | kept
    assert [entry for entry in stored if entry.key in ("a", "c")] == list(recorded)
    assert await store.audit() == []


async def test_a_restart_waits_for_a_checkpoint_that_was_given_up(
    store: PostgresStore, schema: str, connection: Any
) -> None:
    lease = await running(store, is_workflow=True)
    await store.checkpoint([checkpoint(lease, "began")])
    async with connection.transaction():
        await connection.fetch(Statements(schema)["checkpoint"], None, *checkpoint_columns([checkpoint(lease, "a")]))
        restarting = asyncio.create_task(store.checkpoint([checkpoint(lease, "b", restart=Restart(b"2"))]))
        await until_blocking(connection)
    [recorded] = await restarting
    assert recorded is not None
    assert await keys(store, lease.job_id) == ["b"]
    assert (await store.extend("w", [lease.key], 60.0)).lost == ()
    assert await store.audit() == []


async def test_a_restart_between_checkpoints_of_one_call(store: PostgresStore) -> None:
    lease = await running(store, is_workflow=True)
    restarted = checkpoint(lease, "b", restart=Restart(b"2"))
    results = await store.checkpoint([checkpoint(lease, "a"), restarted, checkpoint(lease, "c")])
    assert all(result is not None for result in results)
    assert await keys(store, lease.job_id) == ["b", "c"]
    assert await store.audit() == []


async def test_a_repeated_key_with_other_data_gets_the_first(store: PostgresStore) -> None:
    lease = await running(store, is_workflow=True)
    entries = tuple(HistoryEntry(key="a", data=data) for data in (b"1", b"2"))
    [recorded] = await store.checkpoint([Checkpoint(key=lease.key, entries=entries)])
    assert recorded is not None
    assert [entry.data for entry in recorded] == [b"1", b"1"]


# Callers' own transactions


async def test_the_end_of_a_child_appears_with_the_commit(store: PostgresStore, connection: Any) -> None:
    good, bad = await running(store, parent=PARENT), await running(store, parent=PARENT)
    transaction = connection.transaction()
    await transaction.start()
    await store.settle(done(bad), connection)
    await transaction.rollback()
    async with connection.transaction():
        await store.settle(done(good, Failed(message="no", retry=False)), connection)
        assert await store.ended_jobs() == []
    [ended] = await store.ended_jobs()
    assert (ended.job_id, ended.state, ended.parent, ended.reason) == (good.job_id, State.FAILED, PARENT, "no")


@pytest.mark.parametrize("is_workflow", [True, False])
async def test_what_arrives_while_a_transaction_parks_the_job_wakes_it(
    store: PostgresStore, connection: Any, is_workflow: bool
) -> None:
    lease = await running(store, is_workflow=is_workflow)
    await store.signal(lease.job_id, "other")  # it has a history already
    wake = (Wake(signal_scope("go"), 1),) if is_workflow else ()
    async with connection.transaction():
        await store.settle(done(lease, Park("go", None, wake)), connection)
        waking = asyncio.create_task(store.signal(lease.job_id, "go", b"1"))
        await until_blocking(connection)
    assert await waking is True
    assert [each.job_id for each in (await exchange(store, 1)).leases] == [lease.job_id]


async def test_one_of_two_concurrent_inserts_creates_a_child(
    store: PostgresStore, postgres_url: str, schema: str, connection: Any
) -> None:
    job = new(parent=PARENT)
    await store.configure("default", QueueSettings())
    async with opened(postgres_url, schema) as other:
        async with connection.transaction():
            [mine] = await store.insert([job], connection)
            waiting = asyncio.create_task(other.insert([job, new(parent=PARENT)]))
            await until_blocking(connection)
        theirs = await waiting
        assert (mine.created, mine.id) == (True, job.id)
        assert [each.created for each in theirs] == [False, True]
        assert theirs[0].id == job.id
        job = new(parent=PARENT)
        calls = [each.insert([job, new(parent=PARENT)]) for each in (store, other) for _ in range(10)]
        results = await asyncio.gather(*calls)
        assert {result[0].id for result in results} == {job.id}
        assert sum(result[0].created for result in results) == 1
        assert await store.audit() == []


# Migration


async def test_signals_of_the_earlier_schema_are_kept(postgres_url: str) -> None:
    async with new_schema(postgres_url) as schema:
        connection = await asyncpg.connect(postgres_url)
        try:
            for number, _, text in migrations()[:4]:
                await connection.execute(script(number, text, Statements(schema)))
            # A function as it was then, and a running job that has not taken its signals.
            await connection.execute(f"""
                CREATE FUNCTION {schema}.jobyard_signal(p_now bigint, p_id text, p_name text, p_data bytea)
                  RETURNS TABLE (woke boolean, final text) LANGUAGE sql AS 'SELECT true, NULL::text';
                INSERT INTO {schema}.jobyard_queue (name, running) VALUES ('default', 1);
                INSERT INTO {schema}.jobyard_group (queue, name, running, turn) VALUES ('default', '', 1, 1);
                INSERT INTO {schema}.jobyard_job (sequence, id, kind, queue, group_name, priority, max_attempts, flags,
                  run_at, created_at, payload) VALUES (1, 'old', 'k', 'default', '', 0, 3, 8, 1, 1, '{{}}');
                INSERT INTO {schema}.jobyard_lease (sequence, expires_at, started_at, attempt, flags, token, worker,
                  queue, group_name) VALUES (1, 9000000000000, 1, 1, 8, 'token', 'w', 'default', '');
                INSERT INTO {schema}.jobyard_extra (sequence, what, number, name, at, data)
                  VALUES (1, 'signal', 1, 'go', 1, '7'), (1, 'signal', 2, 'stay', 1, '8');
                SELECT setval('{schema}.jobyard_sequence', 1)""")
        finally:
            await connection.close()
        async with opened(postgres_url, schema) as store:
            assert await store.audit() == []
            lease = Lease("old", 1, "token", "k", "default", None, 0, 1, 3, 0, b"{}", None, None, new().backoff)
            await store.signal("old", "go", b"9")
            taken = []
            for name in ("go", "stay", "go"):
                await exchange(store, 0, [done(lease, Park(name))])
                [lease] = (await exchange(store, 1)).leases
                taken.append(lease.signal)
            assert taken == [b"7", b"8", b"9"]
            await exchange(store, 0, [done(lease)])
            assert await store.audit() == []


# Many jobs, long histories


async def test_workflows_that_are_copied_in_bulk(store: PostgresStore) -> None:
    jobs = [new(is_workflow=True) for _ in range(300)]
    await store.insert(jobs)
    assert (await get_job(store, jobs[7].id)).is_workflow
    assert all(lease.is_workflow for lease in (await exchange(store, 5)).leases)


async def test_histories_are_removed_with_their_jobs(store: PostgresStore, schema: str, connection: Any) -> None:
    await store.configure(
        "default", QueueSettings(keep_completed=0, keep_failed=0, keep_completed_seconds=0, keep_failed_seconds=0)
    )
    for _ in range(2):
        leases = [await running(store, is_workflow=True), await running(store)]
        await store.checkpoint([checkpoint(leases[0], "a", "b")])
        await store.signal(leases[1].job_id, "go")
        await exchange(store, 0, [done(leases[0]), done(leases[1], Failed(message="no", retry=False))])
    await store.prune()
    for table in ("job", "history", "scope"):
        assert await connection.fetchval(f"SELECT count(*) FROM {schema}.jobyard_{table}") == 0


async def pages(connection: Any, schema: str, statement: str, *arguments: object) -> int:
    """Read pages of a statement that is rolled back."""
    transaction = connection.transaction()
    await transaction.start()
    text = Statements(schema)[statement]
    [[plan]] = await connection.fetch(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}", *arguments)
    await transaction.rollback()
    buffers = json.loads(plan)[0]["Plan"]
    return int(buffers["Shared Hit Blocks"] + buffers["Shared Read Blocks"])


async def test_the_cost_does_not_grow_with_the_history(store: PostgresStore, schema: str, connection: Any) -> None:
    leases = [await running(store, is_workflow=True) for _ in range(2)]
    for table in ("job", "history", "scope", "done", "ended"):
        await connection.execute(f"ANALYZE {schema}.jobyard_{table}")  # statistics of nearly empty tables
    for lease in leases:
        await store.checkpoint([checkpoint(lease, "first")])
        await store.deliver([Delivery(lease.job_id, "kids", "first", b"1")])
    await store.signal(leases[1].job_id, "go")
    await exchange(store, 0, [done(leases[1], Park("kids", None, (Wake("kids", 100_000),)))])

    async def costs() -> list[int]:
        found = []
        for _ in range(3):  # the first ones read the catalog
            found = [
                await pages(
                    connection, schema, "checkpoint", None, *checkpoint_columns([checkpoint(leases[0], "x", "first")])
                ),
                await pages(connection, schema, "list_history", leases[0].job_id, "kids", 0, 1),
                await pages(connection, schema, "list_histories", [leases[0].job_id] * 2, ["", "kids"], 1),
                await pages(connection, schema, "deliver", None, [leases[1].job_id], ["kids"], ["x"], [b"1"], ["x"]),
                await pages(connection, schema, "signal", None, leases[1].job_id, "go", b"1", "x", 10_000),
                await pages(connection, schema, "list_ended", 10),
            ]
        return found

    few = await costs()
    for lease in leases:
        await store.checkpoint([checkpoint(lease, *map(str, range(4000)))])
        await store.deliver(
            [Delivery(lease.job_id, scope, str(n), b"1") for scope in ("kids", "k") for n in range(4000)]
        )
    many = await costs()
    # Indexes are a level or two deeper.
    assert all(after < 2 * before + 40 for before, after in zip(few, many, strict=True)), (few, many)
