"""Histories on SQLite: older files, what remains in the tables, and costs; counted in steps, not timed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.conformance.support import claim, claim_one, complete, insert, new, settle
from tests.stores.test_sqlite_cost import DONE, File

from jobyard.domain.history import Delivery, HistoryEntry, Wake, signal_scope
from jobyard.domain.job import NewJob, Parent, QueueSettings, State
from jobyard.domain.outcome import Done, Park
from jobyard.domain.state import Settlement, Transition
from jobyard.errors import NotPossible
from jobyard.ports.workflow_store import Checkpoint
from jobyard.stores.sqlite import SqliteStore, database_file
from jobyard.stores.sqlite.claim import claim as claim_jobs
from jobyard.stores.sqlite.histories import deliver
from jobyard.stores.sqlite.insert import insert_jobs
from jobyard.stores.sqlite.queues import configure
from jobyard.stores.sqlite.schema import migrations, schema_version
from jobyard.stores.sqlite.settle import settle_all
from jobyard.testing.clock import ManualClock

PARENT = Parent("the parent", "1:scan", "7")


def old_file(path: Path) -> None:
    """A file of the schema before histories: a job that waits, one that runs, one that has ended, each with signals."""
    with closing(database_file.connect(path, "NORMAL", writer=True)) as old:
        database_file.begin(old)
        schema_version(old)
        for number, _, text in migrations()[:2]:
            for statement in text.split(";\n"):
                old.execute(statement)
            old.execute("UPDATE jobyard_schema SET version = ?", (number,))
        for sequence, name in enumerate(("waits", "runs", "ended"), start=1):
            old.execute(
                """INSERT INTO jobyard_job VALUES (?, ?, 'k', 'default', '', 0, x'7b7d', NULL, 3, 0, 0, NULL, NULL, 1,
                1, NULL, NULL, NULL, NULL, 0)""",
                (sequence, name),
            )
            signals = [b'["go",{"text":"\\u00e9 1.50","list":[true,null]}]', b'["st\xc3\xa4y","x"]', b'["zero",1.50]']
            for number, data in enumerate(signals, start=1):
                old.execute("INSERT INTO jobyard_extra VALUES (?, 'signal', ?, ?)", (sequence, number, data))
        old.execute("INSERT INTO jobyard_ready VALUES ('default', '', 0, 1)")
        old.execute(
            "INSERT INTO jobyard_lease VALUES (2, 'token', ?, 'w', 1, 1, 'default', '', 0, NULL, NULL)", (1 << 45,)
        )
        old.execute("INSERT INTO jobyard_done VALUES (3, 1, 'default', 1, 'FAILED', 1, 1, 'w', 0, 1, NULL, 'no')")
        old.execute("INSERT INTO jobyard_queue VALUES ('default', 1, 1, 9, 9, 9, 0, 0.0, 0, 1, 1, 0, 1, 0, 1, 0)")
        old.execute("INSERT INTO jobyard_group VALUES ('default', '', NULL, 0, 1, 1, 0, 1, 1)")
        old.execute("UPDATE jobyard_counter SET sequence = 3, turn = 1, finish = 1")
        old.execute("COMMIT")


async def test_signals_of_an_older_file_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    old_file(path)
    store = SqliteStore(path)
    await store.open()
    try:
        assert await store.audit() == []
        for scope, data in (
            ("go", b'{"text":"\\u00e9 1.50","list":[true,null]}'),
            ("stäy", b'"x"'),
            ("zero", b"1.50"),
        ):
            [entry] = await store.history("runs", signal_scope(scope))
            assert entry.data == data
        await store.configure("default", QueueSettings(keep_failed=0, keep_failed_seconds=0))
        for name in ("go", "zero"):
            lease = await claim_one(store)
            assert lease.job_id == "waits"
            await settle(store, lease, Park(name))
        assert (await claim_one(store)).signal == b"1.50"
        await store.signal("runs", "new")
        numbers = [(await store.history("runs", signal_scope(name)))[0].number for name in ("go", "stäy", "new")]
        assert numbers == sorted(set(numbers))
        assert await store.prune() == 1
        assert await store.audit() == []
    finally:
        await store.close()


async def test_nothing_stays_of_jobs_that_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    store = SqliteStore(path)
    await store.open()
    try:
        await store.configure("default", QueueSettings(keep_completed=0, keep_completed_seconds=0))
        await insert(store, new(), new(), new(parent=PARENT), new(is_workflow=True, parent=PARENT), new())
        signalled, delivered, child, flow, checked = await claim(store, 5)
        await store.signal(signalled.job_id, "go")
        await store.deliver([Delivery(delivered.job_id, "kids", "a", b"1")])
        for lease in (flow, checked):
            await store.checkpoint([Checkpoint(key=lease.key, entries=(HistoryEntry(key="a"),))])
        await settle(store, flow, Park("kids", None, (Wake("kids", 1),)))
        await store.deliver([Delivery(flow.job_id, "kids", "a", b"1")])
        flow = await claim_one(store)
        await complete(store, [signalled, delivered, child, flow, checked])
        await store.prune()
        await store.forget_ended([child.job_id, flow.job_id])
        with closing(sqlite3.connect(path)) as other:
            for table in ("job", "done", "lease", "extra", "history", "ended"):
                assert other.execute(f"SELECT count(*) FROM jobyard_{table}").fetchone() == (0,), table
    finally:
        await store.close()


async def test_a_job_that_takes_no_signals_does_not_fill_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobyard.stores.sqlite.leases.MAX_SIGNALS", 3)
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    try:
        await insert(store, new())
        lease = await claim_one(store)
        for _ in range(3):
            await store.signal(lease.job_id, "go")
        await store.signal(lease.job_id, "other")
        with pytest.raises(NotPossible):
            await store.signal(lease.job_id, "go")
        await settle(store, lease, Park("go"))
        assert await store.signal(lease.job_id, "go") is False
    finally:
        await store.close()


async def test_the_conditions_of_a_parked_workflow_are_stored_until_it_is_due(tmp_path: Path) -> None:
    path, clock = tmp_path / "jobs.db", ManualClock()
    store = SqliteStore(path, clock)
    await store.open()
    try:
        for ends_by in ("delivery", "deadline"):
            await insert(store, new(is_workflow=True))
            lease = await claim_one(store)
            await settle(store, lease, Park("kids", 60, (Wake("kids", 1),)))
            with closing(sqlite3.connect(path)) as other:
                stored = "SELECT count(*) FROM jobyard_extra WHERE what = 'wake'"
                assert other.execute(stored).fetchone() == (1,)
                if ends_by == "delivery":
                    await store.deliver([Delivery(lease.job_id, "kids", "a", b"1")])
                else:
                    clock.advance(60)
                lease = await claim_one(store)
                assert other.execute(stored).fetchone() == (0,), ends_by
            await settle(store, lease, Done())
    finally:
        await store.close()


# Costs

CHILDREN = 500


def settle_steps(file: File, prefix: str, parent: Parent | None) -> int:
    jobs = [NewJob(id=f"{prefix}-{number}", kind="k", queue="q", parent=parent) for number in range(CHILDREN)]
    file.write(lambda tx: insert_jobs(tx, jobs))
    leases = file.write(lambda tx: claim_jobs(tx, "w", ["q"], CHILDREN, 15))
    assert isinstance(leases, list)
    settlements = [Settlement(lease.key, DONE) for lease in leases]
    return file.count(lambda tx: settle_all(tx, settlements))[1]


def test_children_are_settled_in_a_batch(tmp_path: Path) -> None:
    """The end of a child costs a bounded number of steps more than that of any other job."""
    file = File(tmp_path / "jobs.db")
    plain, children = settle_steps(file, "plain", None), settle_steps(file, "child", PARENT)
    assert children < 2 * plain


def test_the_cost_of_a_delivery_does_not_grow_with_other_histories(tmp_path: Path) -> None:
    file = File(tmp_path / "jobs.db")
    file.write(lambda tx: configure(tx, "q", QueueSettings()))
    park = Transition(to=State.PENDING, counted=False, signal="kids", wake=(Wake("kids", 2),))

    def steps(job_id: str) -> int:
        file.write(lambda tx: insert_jobs(tx, [NewJob(id=job_id, kind="k", queue="q", is_workflow=True)]))
        leases = file.write(lambda tx: claim_jobs(tx, "w", ["q"], 1, 15))
        assert isinstance(leases, list)
        file.write(lambda tx: deliver(tx, [Delivery(job_id, "kids", "first", b"1")]))
        file.write(lambda tx: settle_all(tx, [Settlement(leases[0].key, park)]))
        cost = file.count(lambda tx: deliver(tx, [Delivery(job_id, "kids", "last", b"1")]))[1]
        [woken] = file.connection.execute("SELECT count(*) FROM jobyard_ready").fetchone()
        assert woken == 1
        file.write(lambda tx: claim_jobs(tx, "w", ["q"], 1, 15))
        return cost

    few = steps("few")
    many = [Delivery("few", f"scope {number % 50}", str(number), b"1") for number in range(20_000)]
    file.write(lambda tx: deliver(tx, many))
    assert steps("many") <= few * 1.1
