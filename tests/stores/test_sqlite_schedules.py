"""Ticks on SQLite: one transaction, shared with whatever meets it; several processes; files of before."""

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
from jobyard.stores.sqlite import SqliteStore, connection, writer
from jobyard.stores.sqlite.statements import migrations

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
    """How often the writers took the write lock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0

        def begin(connected: sqlite3.Connection) -> None:
            self.count += 1
            connection.begin(connected)

        monkeypatch.setattr(writer, "begin", begin)


async def armed_names(store: Store, count: int) -> list[str]:
    names = [f"schedule-{number:04}" for number in range(count)]
    await asyncio.gather(*(store.arm(name, 1, since=0) for name in names))
    return names


async def test_a_thousand_ticks_are_one_transaction(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    names = await armed_names(store, 1000)
    transactions = Transactions(monkeypatch)
    jobs = [new(unique=Unique(name), tags=(name,)) for name in names]
    answers = await store.decide([tick(7, job, schedule=name) for name, job in zip(names, jobs, strict=True)])
    assert {answer.decision for answer in answers} == {Decision.MADE}
    assert transactions.count == 1


async def test_calls_that_meet_share_transactions(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    names = await armed_names(store, 200)
    transactions = Transactions(monkeypatch)
    calls = [store.decide([tick(7, schedule=name)]) for name in names]
    inserts = [store.insert([new()]) for _ in names]
    answers = await asyncio.gather(*calls)
    await asyncio.gather(*inserts)
    assert {answer.decision for [answer] in answers} == {Decision.MADE}
    assert transactions.count < 20


async def test_a_bad_call_takes_no_other_with_it(store: SqliteStore) -> None:
    names = await armed_names(store, 20)
    taken = await insert_one(store)
    calls = [store.decide([tick(7, schedule=name), tick(8, schedule=name)]) for name in names]
    bad = store.decide([tick(7), tick(8, new(id=taken))])
    answers = await asyncio.gather(*calls[:10], bad, *calls[10:], return_exceptions=True)
    assert isinstance(answers.pop(10), BadInput)
    assert all(isinstance(answer, list) and answer[1].decision is Decision.MADE for answer in answers)
    assert await store.ticks("nightly") == []
    assert (await store.decide([tick(7)]))[0].decision is Decision.MADE


async def test_two_writers_decide_each_instant_once(store: SqliteStore) -> None:
    other = SqliteStore(store.path)
    await other.open()
    try:
        made: list[tuple[int, str | None]] = []
        for round_ in range(30):
            instants = range(10 * round_ + 1, 10 * round_ + 11)
            handed = [[tick(at) for at in instants] for _ in range(2)]
            answers = await asyncio.gather(store.decide(handed[0]), other.decide(handed[1]))
            for decided in zip(instants, *answers, strict=True):
                at, *both = decided
                [one] = [each for each in both if each.decision is Decision.MADE]
                assert KNOWN in both
                made.append((at, one.job_id))
        told = [(each.at, each.job_id) for each in await other.ticks("nightly", 100)]
        assert told == made[:-101:-1]
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
        answer = await asyncio.wait_for(waiting, 10)
        assert [lease.job_id for lease in answer.leases] == [job.id]
    finally:
        await other.close()


async def test_a_waiting_worker_has_the_job_by_the_very_commit(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = asyncio.create_task(store.exchange("w", [], ["default"], 1, 15, asyncio.Future()))
    # The exchange has been parked once something handed in after it is answered.
    await asyncio.sleep(0)
    await store.now()
    await store.append("log", b"")
    transactions = Transactions(monkeypatch)
    job = new()
    await store.decide([tick(7, job)])
    answer = await asyncio.wait_for(waiting, 10)
    assert [lease.job_id for lease in answer.leases] == [job.id]
    assert transactions.count == 1


async def test_a_file_of_before_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    old = connection.connect(path, "NORMAL", writer=True)
    connection.begin(old)
    connection.version(old)
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
        assert [each.applied for each in await store.migrations()] == [True, True]
        assert await store.append("audit", b"1") == 42
        assert await store.armed() == []
        assert await store.arm("nightly", 1, since=0)
        assert (await store.decide([tick(7)]))[0].decision is Decision.MADE
    finally:
        await store.close()


async def test_what_was_decided_survives_the_process(store: SqliteStore) -> None:
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
