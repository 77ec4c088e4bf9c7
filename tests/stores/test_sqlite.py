"""SQLite store: the file, the caller's own connection, and what remains in the tables."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.conformance.support import claim_one, complete
from tests.support import PATIENCE_SECONDS, eventually

from jobyard.domain.history import Delivery, HistoryEntry
from jobyard.domain.job import NewJob, QueueSettings, State
from jobyard.domain.schedule import Verdict
from jobyard.domain.state import Settlement, Transition
from jobyard.errors import BadInput, NotADatabase, NotPossible, StoreFull, StoreUnavailable
from jobyard.ports.admin_store import Action, Filter
from jobyard.ports.schedule_store import Tick
from jobyard.ports.workflow_store import Checkpoint
from jobyard.stores import sqlite
from jobyard.stores.sqlite import SqliteStore
from jobyard.stores.sqlite.database_file import begin, connect
from jobyard.stores.sqlite.insert import insert_jobs
from jobyard.stores.sqlite.queue_line import promote
from jobyard.stores.sqlite.schema import migrate
from jobyard.stores.sqlite.sql import SQL
from jobyard.stores.sqlite.transaction import Transaction
from jobyard.testing.clock import ManualClock

DONE = Transition(to=State.COMPLETED, result=b"null")
FAILED = Transition(to=State.FAILED, reason="no")


async def test_a_private_payload_is_erased_on_success_and_kept_for_a_retry(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    store = SqliteStore(path)
    await store.open()
    try:
        secret = [NewJob(id=name, kind="k", private_payload=b'"tell nobody"') for name in ("good", "bad")]
        await store.insert(secret)
        good, bad = (await store.exchange("w", [], [], 2, 15)).leases
        assert good.private_payload == b'"tell nobody"'
        await store.exchange("w", [Settlement(good.key, DONE), Settlement(bad.key, FAILED)], [], 0, 15)
        with sqlite3.connect(path) as other:
            left = dict(other.execute("SELECT id, private_payload FROM jobyard_job").fetchall())
        other.close()
        assert left == {"good": None, "bad": b'"tell nobody"'}
    finally:
        await store.close()


async def test_a_callers_transaction_with_an_old_snapshot_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    store = SqliteStore(path)
    await store.open()
    try:
        mine = sqlite3.connect(path, isolation_level=None)
        mine.execute("BEGIN")
        mine.execute("SELECT count(*) FROM jobyard_job").fetchone()
        await store.insert([NewJob(id="first", kind="k")])
        with pytest.raises(StoreUnavailable, match="BEGIN IMMEDIATE"):
            await store.insert([NewJob(id="second", kind="k")], mine)
        mine.execute("ROLLBACK")
        with pytest.raises(NotPossible):
            await store.insert([NewJob(id="second", kind="k")], mine)
        mine.close()
        assert await store.audit() == []
    finally:
        await store.close()


async def test_durable_operations_are_synced_before_they_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claims and renewals do not wait for the sync of the log."""
    synced: list[int] = []

    def sync(file: int) -> None:
        synced.append(file)
        os.fdatasync(file)

    monkeypatch.setattr("jobyard.stores.sqlite.syncer.sync_file", sync)
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    try:
        await store.insert([NewJob(id="one", kind="k")])
        assert len(synced) == 1
        [lease] = (await store.exchange("w", [], [], 1, 15)).leases
        await store.extend("w", [lease.key], 15)
        assert len(synced) == 1
        await store.exchange("w", [Settlement(lease.key, DONE)], [], 0, 15)
        assert len(synced) == 2
        await store.insert([NewJob(id="flow", kind="k", is_workflow=True)])
        [lease] = (await store.exchange("w", [], [], 1, 15)).leases
        synced.clear()
        await store.checkpoint([Checkpoint(key=lease.key, entries=(HistoryEntry(key="a"),))])
        await store.deliver([Delivery("flow", "kids", "a", b"1")])
        assert len(synced) == 2
        await store.arm("nightly", 1, 0)
        assert len(synced) == 3
        missed = Tick(schedule="nightly", revision=1, at=7, queue="default", verdict=Verdict.MISSED)
        await store.decide([missed])
        assert len(synced) == 4
        await store.disarm("nightly")
        assert len(synced) == 5
    finally:
        await store.close()


async def test_after_a_failed_sync_all_writes_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel reports a lost write once, so no later sync proves anything."""

    def broken(file: int) -> None:
        raise OSError(5, "Input/output error")

    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    try:
        monkeypatch.setattr("jobyard.stores.sqlite.syncer.sync_file", broken)
        with pytest.raises(StoreUnavailable):
            await store.insert([NewJob(id="one", kind="k")])
        monkeypatch.undo()
        with pytest.raises(StoreUnavailable):
            await store.insert([NewJob(id="two", kind="k")])
    finally:
        await store.close()
    await store.open()
    await store.insert([NewJob(id="three", kind="k")])
    await store.close()


async def test_running_jobs_are_renewed_and_end_while_the_disk_is_full(tmp_path: Path) -> None:
    """The log is written again from its start, which needs no space."""
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    await store.insert([NewJob(id=f"job-{number}", kind="k") for number in range(20)])
    leases = (await store.exchange("w", [], [], 20, 60.0)).leases
    keys = [lease.key for lease in leases]
    log = tmp_path / "jobs.db-wal"
    while log.stat().st_size < 2 * (tmp_path / "jobs.db").stat().st_size or log.stat().st_size < 500_000:
        await store.extend("w", keys, 60.0)
    no_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size, no_limit[1]))
    try:
        for _ in range(300):
            assert (await store.extend("w", keys, 60.0)).lost == ()
        done = [Settlement(key, Transition(to=State.COMPLETED, result=b"null")) for key in keys]
        assert (await store.exchange("w", done, [], 0, 60.0)).refused == ()
        with pytest.raises(StoreFull):
            await store.insert([NewJob(id="large", kind="k", payload=b'"%s"' % (b"x" * log.stat().st_size))])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, no_limit)
    assert [info.completed for info in await store.queues()] == [20]
    assert await store.audit() == []
    await store.close()


async def test_a_symbolic_link_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "there" / "jobs.db")
    store = SqliteStore(tmp_path / "link.db")
    await store.open()
    await store.insert([NewJob(id="one", kind="k")])
    await store.close()
    assert (tmp_path / "there" / "jobs.db").exists()


async def test_a_deleted_file_is_detected(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    try:
        await store.reclaim()
        (tmp_path / "jobs.db").unlink()
        with pytest.raises(StoreUnavailable, match="deleted or replaced"):
            await store.reclaim()
        with pytest.raises(StoreUnavailable, match="deleted or replaced"):
            await store.insert([NewJob(id="one", kind="k")])
    finally:
        await store.close()


@pytest.mark.parametrize("synchronous", ["full", "normal"])
async def test_a_deleted_write_ahead_log_is_detected(tmp_path: Path, synchronous: str) -> None:
    """A job that was written to the deleted log would be lost with this process."""
    store = SqliteStore(tmp_path / "jobs.db", synchronous=synchronous)
    await store.open()
    try:
        await store.insert([NewJob(id="one", kind="k")])
        (tmp_path / "jobs.db-wal").unlink()
        with pytest.raises(StoreUnavailable, match="db-wal"):
            await store.insert([NewJob(id="two", kind="k")])
        with pytest.raises(StoreUnavailable, match="db-wal"):
            await store.get("one")
    finally:
        await store.close()


async def test_a_write_whose_log_is_deleted_before_the_sync_is_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sync_deleted(_: int) -> None:
        (tmp_path / "jobs.db-wal").unlink()

    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    try:
        monkeypatch.setattr("jobyard.stores.sqlite.syncer.sync_file", sync_deleted)
        with pytest.raises(StoreUnavailable, match="deleted"):
            await store.insert([NewJob(id="one", kind="k")])
    finally:
        await store.close()


async def test_many_due_jobs_join_the_line_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No command waits for all of them, and they all join without another command."""

    def in_line(tx: Transaction) -> int:
        count: int = tx.cursor.execute("SELECT count(*) FROM jobyard_ready").fetchone()[0]
        return count

    monkeypatch.setattr("jobyard.stores.sqlite.queue_line.MAX_PROMOTED", 10)
    monkeypatch.setattr("jobyard.stores.sqlite.writer.LOCK_PAUSE_SECONDS", 0.0)
    clock = ManualClock()
    store = SqliteStore(tmp_path / "jobs.db", clock=clock)
    await store.open()
    try:
        await store.insert([NewJob(id=str(number), kind="k", delay_seconds=1) for number in range(35)])
        clock.advance(1)
        assert await store._connection.write(in_line) == 10
        reading = sqlite3.connect(tmp_path / "jobs.db")
        await eventually(lambda: reading.execute("SELECT count(*) FROM jobyard_ready").fetchone() == (35,))
        reading.close()
        assert await store.audit() == []
    finally:
        await store.close()


def test_a_slow_machine_promotes_fewer_due_jobs_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes wait for the write lock meanwhile, so that the time of a transaction counts."""
    monkeypatch.setattr("jobyard.stores.sqlite.queue_line.PROMOTED_PER_STEP", 10)
    monkeypatch.setattr("jobyard.stores.sqlite.queue_line.MAX_PROMOTION_SECONDS", 0.0)
    connection = connect(tmp_path / "jobs.db", "NORMAL", writer=True)
    migrate(connection, tmp_path / "jobs.db")
    with closing(connection):
        begin(connection)
        tx = Transaction(connection, 1000)
        insert_jobs(tx, [NewJob(id=str(number), kind="k", delay_seconds=1) for number in range(35)])
        tx.flush()
        promotions = []
        for _ in range(4):
            tx = Transaction(connection, 2000)
            has_more = promote(tx)
            tx.flush()
            promotions.append((has_more, tx.queue("default").waiting))
        assert promotions == [(True, 10), (True, 20), (True, 30), (False, 35)]
        connection.rollback()


def test_a_long_wait_for_the_lock_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "jobs.db"
    with (
        closing(connect(path, "NORMAL", writer=True)) as holder,
        closing(connect(path, "NORMAL", writer=True)) as other,
    ):
        begin(holder)
        with pytest.raises(sqlite3.OperationalError):
            begin(other, 0.02)
        assert caplog.messages == []
        monkeypatch.setattr("jobyard.stores.sqlite.database_file.LOCK_WARNING_SECONDS", 0.0)
        with pytest.raises(sqlite3.OperationalError):
            begin(other, 0.02)
        [message] = caplog.messages
        assert message.startswith(f"{path}: another process holds the lock.")
        holder.rollback()
        begin(other)
        assert caplog.messages == [message]


async def test_closing_wakes_waiters(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    await store.insert([NewJob(id="one", kind="k", delay_seconds=60)])
    waiting = asyncio.create_task(store.wait_for_end("one", 60))
    assert not (await asyncio.wait([waiting], timeout=0.05))[0]
    await store.close()
    with pytest.raises(StoreUnavailable):
        await waiting


async def test_an_end_right_after_another_change_is_detected_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that runs for a few milliseconds: the poll that saw its start must not delay the one that sees its end."""
    # Only the processor time of the polls makes them rarer, and with one waiter that is next to none.
    monkeypatch.setattr("jobyard.stores.sqlite.change_watcher.MAX_ENDED_PAUSE_SECONDS", 3600.0)
    here, there = SqliteStore(tmp_path / "jobs.db"), SqliteStore(tmp_path / "jobs.db")
    await here.open()
    await there.open()
    for number in range(10):
        await here.insert([NewJob(id=f"job-{number}", kind="k")])
        waiting = asyncio.create_task(here.wait_for_end(f"job-{number}", PATIENCE_SECONDS))
        lease = await claim_one(there)
        await asyncio.sleep(0.005)  # the run time of the job, in which its start is detected
        await complete(there, [lease])
        assert await waiting is not None
    await here.close()
    await there.close()


FAULTS = [
    "UPDATE jobyard_queue SET running = running + 1",
    "UPDATE jobyard_queue SET waiting = waiting + 1",
    "UPDATE jobyard_queue SET delayed = delayed + 1",
    "UPDATE jobyard_queue SET completed = completed + 1",
    "UPDATE jobyard_queue SET failed = failed + 1",
    "UPDATE jobyard_group SET running = running + 1",
    "UPDATE jobyard_group SET waiting = waiting + 1",
    "UPDATE jobyard_group SET delayed = delayed + 5",
    "UPDATE jobyard_group SET open = 1 - open",
    "DELETE FROM jobyard_group WHERE name = 'ready'",
    "DELETE FROM jobyard_group WHERE name = 'later'",
    "DELETE FROM jobyard_group WHERE name = 'runs'",
    "DELETE FROM jobyard_queue",
    "DELETE FROM jobyard_ready",
    "DELETE FROM jobyard_lease",
    "DELETE FROM jobyard_done",
    "DELETE FROM jobyard_delayed",
    "INSERT INTO jobyard_ready VALUES ('q', 'ready', 0, 999)",
    "INSERT INTO jobyard_delayed VALUES (1, 999)",
    "INSERT INTO jobyard_tag VALUES ('t', 999)",
    "INSERT INTO jobyard_extra VALUES (999, 'log', 1, '{}')",
    "INSERT INTO jobyard_history VALUES (999, '', 1, 'a', 1, '{}', NULL)",
    "INSERT INTO jobyard_history VALUES (1, 'other', 1, 'a', 1, '{}', NULL)",
    "INSERT INTO jobyard_history VALUES (2, 'other', 1, 'a', 1, '{}', NULL)",
    "UPDATE jobyard_lease SET flags = 16",
    "UPDATE jobyard_done SET flags = 32",
    "INSERT INTO jobyard_unique VALUES ('q', 'k', 'gone', NULL)",
    "INSERT INTO jobyard_ready SELECT queue, group_name, 0, sequence FROM jobyard_lease",
    "INSERT INTO jobyard_tick VALUES ('unarmed', 1, 'missed', NULL, 1, 1, 1)",
    "INSERT INTO jobyard_tick VALUES ('armed', 8, 'missed', NULL, 8, 1, 1)",
]


@pytest.mark.parametrize("fault", FAULTS)
async def test_the_audit_finds_each_fault_and_repair_restores_it(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "jobs.db"
    store = SqliteStore(path)
    await store.open()
    try:
        await store.insert([NewJob(id="done", kind="k", queue="q", group="ends")])
        [lease] = (await store.exchange("w", [], [], 1, 15)).leases
        await store.exchange("w", [Settlement(lease.key, DONE)], [], 0, 15)
        await store.insert([NewJob(id="runs", kind="k", queue="q", group="runs")])
        await store.exchange("w", [], [], 1, 15)
        await store.insert([NewJob(id="ready", kind="k", queue="q", group="ready")])
        await store.insert([NewJob(id="later", kind="k", queue="q", group="later", delay_seconds=900)])
        await store.arm("armed", 1, 7)
        assert await store.audit() == []
        with sqlite3.connect(path) as other:
            other.execute(fault)
        other.close()
        assert await store.audit() != []
        assert await store.repair() != []
        assert await store.audit() == []
    finally:
        await store.close()


async def test_invalid_text_and_cursors_are_rejected(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    try:
        with pytest.raises(BadInput):
            await store.get("\udc80")
        with pytest.raises(BadInput):
            await store.signal("\udc80", "go")
        with pytest.raises(BadInput):
            await store.find(Filter(), cursor="zzz")
    finally:
        await store.close()


async def test_a_page_visits_a_bounded_number_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter that matches few jobs gives short pages with a cursor, and all pages together are complete."""
    monkeypatch.setattr("jobyard.stores.sqlite.jobs.MAX_ROWS_PER_PAGE", 10)
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    try:
        await store.configure("q", QueueSettings())
        rare = {3, 27, 41}
        words = ["rare" if n in rare else "usual" for n in range(50)]
        jobs = [NewJob(id=f"{n:03}", kind="k", queue="q", payload=f'"{word}"'.encode()) for n, word in enumerate(words)]
        await store.insert(jobs)
        found: list[str] = []
        cursor, pages = None, 0
        while True:
            page = await store.find(Filter(queue="q", text="rare"), 2, cursor)
            found += [job.id for job in page.jobs]
            pages, cursor = pages + 1, page.cursor
            if cursor is None:
                break
        assert found == ["041", "027", "003"]
        assert pages >= 5
    finally:
        await store.close()


async def test_a_cancel_by_another_process_wakes_a_worker_once(tmp_path: Path) -> None:
    """A second store on the same file acts as another process. A known cancel request does not wake again."""
    here, there = SqliteStore(tmp_path / "jobs.db"), SqliteStore(tmp_path / "jobs.db")
    await here.open()
    await there.open()
    try:
        await here.insert([NewJob(id="one", kind="k")])
        await here.exchange("w", [], [], 1, 15)
        waiting = asyncio.create_task(here.wait_for_work([], 30))
        assert not (await asyncio.wait([waiting], timeout=0.05))[0]
        await there.change(Action.CANCEL, ["one"])
        assert await waiting
        assert not await here.wait_for_work([], 0.05)
    finally:
        await here.close()
        await there.close()


async def test_due_jobs_join_the_line_before_an_insert_in_the_callers_transaction(tmp_path: Path) -> None:
    path, clock = tmp_path / "jobs.db", ManualClock()
    store = SqliteStore(path, clock)
    await store.open()
    try:
        await store.insert([NewJob(id="early", kind="k", group="a", delay_seconds=5)])
        clock.advance(10)
        mine = sqlite3.connect(path, isolation_level=None)
        mine.execute("BEGIN IMMEDIATE")
        await store.insert([NewJob(id="late", kind="k", group="b")], mine)
        mine.execute("COMMIT")
        mine.close()
        leases = (await store.exchange("w", [], [], 2, 15)).leases
        assert [lease.job_id for lease in leases] == ["early", "late"]
    finally:
        await store.close()


async def test_a_claim_in_a_failed_transaction_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    until: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(store.exchange("w", (), (), 1, 10.0, until))
    # Operations run in order: once a later one has returned, the exchange is waiting.
    await asyncio.sleep(0)
    await store.append("log", b"")

    def full(tx: Transaction) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Transaction, "flush", full)
    with pytest.raises(StoreFull):
        await store.insert([NewJob(id="one", kind="k")])
    monkeypatch.undo()
    until.set_result(None)
    assert (await waiting).leases == ()
    assert await store.get("one") is None
    await store.close()


def test_the_code_names_every_statement_and_no_other() -> None:
    texts = (path.read_text("utf-8") for path in Path(sqlite.__file__).parent.glob("*.py"))
    named = {name for text in texts for name in re.findall(r'SQL\["(\w+)"\]', text)}
    assert named == {name for name in SQL if not name.startswith("repair_")}, "a repair runs them by their prefix"


async def test_a_damaged_value_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    store = SqliteStore(path)
    await store.open()
    try:
        await store.insert([NewJob(id="damaged", kind="k", tags=("nightly",)), NewJob(id="healthy", kind="k")])
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("UPDATE jobyard_job SET tags = '[\"nigh' WHERE id = 'damaged'")
        with pytest.raises(NotADatabase, match=r"Cannot read .*jobs\.db: a stored value is damaged .* from a backup"):
            await store.get("damaged")
        assert await store.get("healthy") is not None
    finally:
        await store.close()
