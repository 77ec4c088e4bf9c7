"""Ticks on SQLite: shared transactions, several processes, and migration of older files."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conformance.support import insert_one, new, tick

from jobyard.domain.job import Unique
from jobyard.errors import BadInput
from jobyard.ports.schedule_store import Decided, Decision
from jobyard.ports.store import Store
from jobyard.stores.sqlite import SqliteStore, database_file, writer
from jobyard.stores.sqlite.schema import migrations, schema_version

KNOWN = Decided(Decision.KNOWN)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    await store.arm("nightly", 1, since=0)
    yield store
    assert await store.audit() == []
    await store.close()


class Transactions:
    """Counts how often the writers take the write lock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0

        def begin(connection: sqlite3.Connection) -> None:
            self.count += 1
            database_file.begin(connection)

        monkeypatch.setattr(writer, "begin", begin)


async def armed_names(store: Store, count: int) -> list[str]:
    names = [f"schedule-{number:04}" for number in range(count)]
    await asyncio.gather(*(store.arm(name, 1, since=0) for name in names))
    return names


async def test_a_thousand_ticks_are_one_transaction(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    names = await armed_names(store, 1000)
    transactions = Transactions(monkeypatch)
    jobs = [new(unique=Unique(name), tags=(name,)) for name in names]
    responses = await store.decide([tick(7, job, schedule=name) for name, job in zip(names, jobs, strict=True)])
    assert {response.decision for response in responses} == {Decision.MADE}
    assert transactions.count == 1


async def test_concurrent_calls_share_transactions(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    names = await armed_names(store, 200)
    transactions = Transactions(monkeypatch)
    calls = [store.decide([tick(7, schedule=name)]) for name in names]
    inserts = [store.insert([new()]) for _ in names]
    responses = await asyncio.gather(*calls)
    await asyncio.gather(*inserts)
    assert {response.decision for [response] in responses} == {Decision.MADE}
    assert transactions.count < 20


async def test_an_invalid_call_does_not_fail_others(store: SqliteStore) -> None:
    names = await armed_names(store, 20)
    taken = await insert_one(store)
    calls = [store.decide([tick(7, schedule=name), tick(8, schedule=name)]) for name in names]
    bad = store.decide([tick(7), tick(8, new(id=taken))])
    responses = await asyncio.gather(*calls[:10], bad, *calls[10:], return_exceptions=True)
    assert isinstance(responses.pop(10), BadInput)
    assert all(isinstance(response, list) and response[1].decision is Decision.MADE for response in responses)
    assert await store.ticks("nightly") == []
    assert (await store.decide([tick(7)]))[0].decision is Decision.MADE


async def test_two_writers_decide_each_instant_once(store: SqliteStore) -> None:
    other = SqliteStore(store.path)
    await other.open()
    try:
        made: list[tuple[int, str | None]] = []
        for round_ in range(30):
            instants = range(10 * round_ + 1, 10 * round_ + 11)
            batches = [[tick(at) for at in instants] for _ in range(2)]
            responses = await asyncio.gather(store.decide(batches[0]), other.decide(batches[1]))
            for decided in zip(instants, *responses, strict=True):
                at, *both = decided
                [one] = [each for each in both if each.decision is Decision.MADE]
                assert KNOWN in both
                made.append((at, one.job_id))
        recorded = [(each.at, each.job_id) for each in await other.ticks("nightly", 100)]
        assert recorded == made[:-101:-1]
        [queue] = await store.queues()
        assert queue.waiting == len(made) == 300
    finally:
        await other.close()


async def test_a_worker_of_another_process_is_woken(store: SqliteStore) -> None:
    other = SqliteStore(store.path)
    await other.open()
    try:
        waiting = asyncio.create_task(other.exchange("w", [], ["default"], 1, 15, asyncio.Future()))
        await asyncio.sleep(0)
        job = new()
        await store.decide([tick(7, job)])
        response = await asyncio.wait_for(waiting, 60)
        assert [lease.job_id for lease in response.leases] == [job.id]
    finally:
        await other.close()


async def test_a_waiting_worker_claims_in_the_transaction_that_inserts(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = asyncio.create_task(store.exchange("w", [], ["default"], 1, 15, asyncio.Future()))
    # Operations run in order: once a later one has returned, the exchange is waiting.
    await asyncio.sleep(0)
    await store.now()
    await store.append("log", b"")
    transactions = Transactions(monkeypatch)
    job = new()
    await store.decide([tick(7, job)])
    response = await asyncio.wait_for(waiting, 60)
    assert [lease.job_id for lease in response.leases] == [job.id]
    assert transactions.count == 1


async def test_an_older_file_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    old = database_file.connect(path, "NORMAL", writer=True)
    database_file.begin(old)
    schema_version(old)
    for statement in migrations()[0][2].split(";\n"):
        old.execute(statement)
    old.execute("UPDATE jobyard_schema SET version = 1")
    old.execute("INSERT INTO jobyard_fired VALUES ('nightly', 7, 'job')")
    old.execute("INSERT INTO jobyard_log VALUES ('audit', 41, 1, x'00')")
    old.execute("COMMIT")
    old.close()
    store = SqliteStore(path)
    await store.open()
    try:
        assert all(each.applied for each in await store.migrations())
        assert await store.append("audit", b"1") == 42
        assert await store.armed() == []
        assert await store.arm("nightly", 1, since=0)
        assert (await store.decide([tick(7)]))[0].decision is Decision.MADE
    finally:
        await store.close()


async def test_decided_ticks_survive_the_process(store: SqliteStore) -> None:
    await store.decide([tick(7), tick(9)])
    before = (await store.armed(), await store.ticks("nightly"))
    await store.close()
    again = SqliteStore(store.path)
    await again.open()
    try:
        assert (await again.armed(), await again.ticks("nightly")) == before
        assert await again.decide([tick(9)]) == [KNOWN]
    finally:
        await again.close()
        await store.open()
