"""The SQLite store: one file, many processes; each verb is a function handed to the writer or the reader."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from jobyard.domain.explain import Standing
from jobyard.domain.instant import Instant
from jobyard.domain.job import Job, NewJob, QueueSettings
from jobyard.domain.lease import ExpiredLease, Lease, LeaseKey
from jobyard.domain.state import Settlement
from jobyard.errors import LeaseLost, NotPossible, StoreUnavailable
from jobyard.ports.admin_store import Action, Changed, Filter, GroupInfo, Page, QueueAges, QueueInfo
from jobyard.ports.clock import Clock, SystemClock
from jobyard.ports.job_store import Exchange, Extended, Inserted, Report
from jobyard.ports.record_store import LogEntry, Record
from jobyard.ports.schedule_store import Armed, Decided, Tick, TickInfo, WorkerInfo
from jobyard.ports.store import Finding, Migration, Store
from jobyard.stores.sqlite import change, insert, leases, people, records, retention, schedules, settle
from jobyard.stores.sqlite.ages import ages
from jobyard.stores.sqlite.audit import audit
from jobyard.stores.sqlite.claim import claim
from jobyard.stores.sqlite.connection import plain_words, require_same_file, same_file
from jobyard.stores.sqlite.examine import file_findings, known_migrations
from jobyard.stores.sqlite.line import next_due, promote
from jobyard.stores.sqlite.reader import Reader
from jobyard.stores.sqlite.statements import sql
from jobyard.stores.sqlite.transaction import Transaction
from jobyard.stores.sqlite.watch import Watch
from jobyard.stores.sqlite.writer import Writer

T = TypeVar("T")
HAS_WORK, ANY_EXPIRED_LEASE, NEXT_DELAYED = sql("has_work"), sql("any_expired_lease"), sql("next_delayed")
HAS_ANY_WORK, COUNT_CANCELS = sql("has_any_work"), sql("count_cancels")
SHORT_LIVED_SECONDS = 60.0


class Idle:
    """Whether an answer has nothing for the worker: no job, and no wish to stop one that it could not know of."""

    def __init__(self) -> None:
        self._known: set[object] | None = None

    def __call__(self, answer: Exchange) -> bool:
        asked: set[object] = set(answer.cancelled)
        if self._known is None:
            self._known = asked
        return not answer.leases and asked <= self._known


class SqliteStore:
    """`synchronous` FULL (the default): what was answered survives a power failure.

    NORMAL may lose the last moments then; OFF may damage the file.
    """

    has_transactions = True
    is_remote = False

    def __init__(self, path: str | Path, clock: Clock | None = None, synchronous: str = "FULL") -> None:
        # SQLite names its log after the file behind a link.
        self.path = Path(path).resolve()
        self.url = f"sqlite:///{path}"
        self._clock: Clock = clock or SystemClock()
        self._synchronous = synchronous.upper()
        self._awaited: Counter[str] = Counter()
        self._parts: tuple[Writer, Reader, Watch] | None = None
        self._opening = threading.Lock()

    async def open(self) -> None:
        await asyncio.to_thread(self._open)

    def _open(self) -> None:
        with self._opening:
            if self._parts is None:
                self._parts = self._make_parts()

    def _make_parts(self) -> tuple[Writer, Reader, Watch]:
        # The writer makes the file and its schema; the others need both.
        writer = Writer(self.path, self._clock, self._synchronous, self._awaited, self._committed)
        self._inode = self.path.stat().st_ino
        try:
            reader = Reader(self.path)
            watch = Watch(self.path, self._clock, writer.own_write_at)
        except BaseException:
            writer.close()
            raise
        return writer, reader, watch

    async def close(self) -> None:
        await asyncio.shield(asyncio.to_thread(self._close))

    def _close(self) -> None:
        with self._opening:
            parts, self._parts = self._parts, None
            for part in parts or ():
                part.close()

    async def diagnose(self) -> list[Finding]:
        return await asyncio.to_thread(lambda: list(file_findings(self.path)))

    async def migrations(self) -> list[Migration]:
        return await asyncio.to_thread(lambda: known_migrations(self.path))

    def for_event_loop(self) -> Store:
        return self

    def _committed(self, arrived: bool, ended: dict[str, Job | None]) -> None:
        parts = self._parts
        if parts is not None:
            parts[2].committed(arrived, ended)

    def _open_parts(self) -> tuple[Writer, Reader, Watch]:
        if self._parts is None:
            raise StoreUnavailable(f"The store {self.url} is not open: use it inside `async with`.")
        return self._parts

    async def _write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        return await self._open_parts()[0].write(work, durable=durable)

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._open_parts()[1].read(work)

    async def _read_line(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read what depends on the line: jobs whose time has come join it first."""
        row = await self._read(lambda connection: connection.execute(NEXT_DELAYED).fetchone())
        if row is not None and row[0] <= self._clock.now():
            await self._write(lambda _: None, durable=False)
        return await self._read(work)

    # The hot path

    async def insert(self, jobs: Sequence[NewJob], transaction: Any = None) -> list[Inserted]:
        if transaction is not None:
            return self._beside(transaction, lambda tx: insert.insert(tx, jobs))
        return await self._write(lambda tx: insert.insert(tx, jobs))

    async def settle(self, settlement: Settlement, transaction: Any) -> None:
        if self._beside(transaction, lambda tx: settle.settle(tx, [settlement])):
            raise LeaseLost(f"Job {settlement.key.job_id}: the lease was lost; roll back what this attempt has done.")

    def _beside(self, connection: Any, work: Callable[[Transaction], T]) -> T:
        """In the caller's own transaction: it counts when, and only if, the caller commits."""
        if not isinstance(connection, sqlite3.Connection):
            raise NotPossible(f"A {type(connection).__name__} is not a sqlite3 connection.")
        if connection.text_factory is not str:
            raise NotPossible("This connection has its own text_factory; jobs need one that reads text as str.")
        with plain_words(self.path):
            if not same_file(connection, self.path):
                raise NotPossible(f"The transaction belongs to another database; jobs live in {self.path}.")
            if not connection.in_transaction:
                raise NotPossible("The connection has no open transaction: execute BEGIN IMMEDIATE first.")
            # Its own savepoint: a refusal must leave the caller's other work as it was.
            connection.execute("SAVEPOINT jobyard")
            try:
                tx = Transaction(connection, self._clock.now())
                while promote(tx):
                    tx.flush()
                answer = work(tx)
                tx.flush()
            except BaseException:
                connection.execute("ROLLBACK TO jobyard")
                connection.execute("RELEASE jobyard")
                raise
            connection.execute("RELEASE jobyard")
        return answer

    async def exchange(
        self,
        worker: str,
        settlements: Sequence[Settlement],
        queues: Sequence[str],
        wanted: int,
        lease_seconds: float,
        until: asyncio.Future[None] | None = None,
    ) -> Exchange:
        def work(tx: Transaction) -> Exchange:
            refused = settle.settle(tx, settlements)
            claimed = claim(tx, worker, queues, wanted, lease_seconds)
            if settlements and len(claimed) == wanted:
                # Slots came free and this worker may not have taken all: others should look.
                tx.arrived = True
            if claimed or len(refused) < len(settlements):
                tx.bump()
            return Exchange(
                refused=tuple(refused),
                leases=tuple(claimed),
                # Whoever waited for this job should have it now; of cancels it hears within a second anyway.
                cancelled=() if claimed and until is not None else leases.cancelled(tx, worker),
                next_due_at=next_due(tx),
                revision=tx.revision,
                now=tx.now,
            )

        if until is None or settlements:
            return await self._write(work, durable=bool(settlements))
        writer, _, watch = self._open_parts()
        with watch.calling(writer.look, self._has_work(queues)):
            return await writer.write_in_time(work, Idle(), until)

    async def extend(
        self, worker: str, keys: Sequence[LeaseKey], lease_seconds: float, *, unacknowledged: bool = False
    ) -> Extended:
        return await self._write(
            lambda tx: leases.extend(tx, worker, keys, lease_seconds, unacknowledged=unacknowledged), durable=False
        )

    async def report(self, reports: Sequence[Report]) -> tuple[LeaseKey, ...]:
        return await self._write(lambda tx: leases.report(tx, reports), durable=False)

    async def reclaim(self, limit: int = 1000) -> list[ExpiredLease]:
        now = self._clock.now()
        require_same_file(self.path, self._inode)
        # Asking first keeps an idle fleet from taking turns at the write lock.
        if await self._read(lambda connection: connection.execute(ANY_EXPIRED_LEASE, (now,)).fetchone()) is None:
            return []
        return await self._write(lambda tx: settle.reclaim(tx, now, limit), durable=False)

    def _has_work(self, queues: Sequence[str]) -> Callable[[sqlite3.Connection], bool | None]:
        names = msgspec.json.encode(list(queues)).decode()
        cancels: int | None = None

        def question(connection: sqlite3.Connection) -> bool | None:
            nonlocal cancels
            if (connection.execute(HAS_WORK, (names,)) if queues else connection.execute(HAS_ANY_WORK)).fetchone():
                return True
            asked: int = connection.execute(COUNT_CANCELS).fetchone()[0]
            # Only a cancel that is new since the sleep began: one that takes its time must not keep everybody awake.
            if cancels is not None and asked > cancels:
                return True
            cancels = asked
            row = connection.execute(NEXT_DELAYED).fetchone()
            return True if row and row[0] <= self._clock.now() else None

        return question

    async def wait_for_work(self, queues: Sequence[str], timeout_seconds: float) -> bool:
        question = self._has_work(queues)
        if timeout_seconds <= 0:
            return await self._read(question) is not None
        answer = await self._open_parts()[2].wait_for_work(question, timeout_seconds)
        if isinstance(answer, Exception):
            raise answer
        return answer is not None

    async def wait_for_end(self, job_id: str, timeout_seconds: float) -> Job | None:
        if timeout_seconds <= 0:
            ended, job = await self._read(lambda connection: people.end_of(connection, job_id))
            return job if ended else None
        # While it is listed, this process's writer shows the job's end before retention may take it away.
        self._awaited[job_id] += 1
        try:
            answer = await self._open_parts()[2].wait_for_end(job_id, timeout_seconds)
        finally:
            self._awaited[job_id] -= 1
            if not self._awaited[job_id]:
                del self._awaited[job_id]
        if isinstance(answer, Exception):
            raise answer
        final: Job | None = answer
        return final

    async def adopt(self, job: NewJob, worker: str, external_id: str) -> Lease:
        return await self._write(lambda tx: leases.adopt(tx, job, worker, external_id))

    async def signal(self, job_id: str, name: str, data: bytes = b"null") -> bool:
        return await self._write(lambda tx: change.signal(tx, job_id, name, data))

    # People

    async def get(self, job_id: str) -> Job | None:
        return await self._read(lambda connection: people.get(connection, job_id))

    async def find(self, where: Filter, limit: int = 50, cursor: str | None = None) -> Page:
        return await self._read(lambda connection: people.find(connection, where, limit, cursor))

    async def change(self, action: Action, job_ids: Sequence[str], *, reason: str = "", priority: int = 0) -> Changed:
        return await self._write(lambda tx: change.change(tx, action, job_ids, reason, priority))

    async def configure(self, queue: str, settings: QueueSettings) -> None:
        await self._write(lambda tx: change.configure(tx, queue, settings))

    async def set_paused(self, queue: str, group: str | None, paused: bool) -> None:
        await self._write(lambda tx: change.set_paused(tx, queue, group, paused))

    async def set_limit(self, queue: str, group: str, limit: int | None) -> None:
        await self._write(lambda tx: change.set_limit(tx, queue, group, limit))

    async def queues(self) -> list[QueueInfo]:
        return await self._read_line(people.queues)

    async def ages(self) -> list[QueueAges]:
        return await self._read_line(ages)

    async def groups(self, queue: str, limit: int = 1000, after: str | None = None) -> list[GroupInfo]:
        return await self._read_line(lambda connection: people.groups(connection, queue, limit, after))

    async def standing(self, job_id: str) -> Standing:
        now = self._clock.now()
        return await self._read_line(lambda connection: people.standing(connection, job_id, now))

    async def prune(self, limit: int = 1000) -> int:
        return await self._write(lambda tx: retention.prune(tx, limit))

    async def audit(self) -> list[str]:
        return await self._read(audit)

    # The clock

    async def now(self) -> Instant:
        return self._clock.now()

    async def arm(self, schedule: str, revision: int, since: Instant | None = None) -> bool:
        return await self._write(lambda tx: schedules.arm(tx, schedule, revision, since))

    async def disarm(self, schedule: str, revision: int | None = None) -> bool:
        return await self._write(lambda tx: schedules.disarm(tx, schedule, revision))

    async def armed(self, limit: int = 1000, after: str | None = None) -> list[Armed]:
        return await self._read(lambda connection: schedules.armed(connection, limit, after))

    async def decide(self, ticks: Sequence[Tick]) -> list[Decided]:
        return await self._write(lambda tx: schedules.decide(tx, ticks))

    async def ticks(self, schedule: str, limit: int = 50, before: Instant | None = None) -> list[TickInfo]:
        return await self._read(lambda connection: schedules.ticks(connection, schedule, limit, before))

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        await self._write(lambda tx: records.heartbeat(tx, worker, seconds), durable=False)

    async def workers(self) -> list[WorkerInfo]:
        now = self._clock.now()
        return await self._read(lambda connection: people.workers(connection, now))

    # Records

    async def put(
        self, collection: str, key: str, data: bytes, *, expect: int | None = None, expire_seconds: float | None = None
    ) -> int | None:
        # What will be gone in a minute need not survive a power failure.
        lasts = expire_seconds is None or expire_seconds > SHORT_LIVED_SECONDS
        return await self._write(
            lambda tx: records.put(tx, collection, key, data, expect, expire_seconds), durable=lasts
        )

    async def fetch(self, collection: str, key: str) -> Record | None:
        now = self._clock.now()
        return await self._read(lambda connection: records.fetch(connection, collection, key, now))

    async def fetch_all(self, collection: str, limit: int = 1000, after: str | None = None) -> list[Record]:
        now = self._clock.now()
        return await self._read(lambda connection: records.fetch_all(connection, collection, limit, after, now))

    async def remove(self, collection: str, key: str, *, expect: int | None = None) -> bool:
        return await self._write(lambda tx: records.remove(tx, collection, key, expect))

    async def append(self, log: str, data: bytes) -> int:
        return await self._write(lambda tx: records.append(tx, log, data))

    async def read(self, log: str, after: int = 0, limit: int = 1000) -> list[LogEntry]:
        return await self._read(lambda connection: records.read(connection, log, after, limit))

    async def trim(self, log: str, through: int) -> int:
        return await self._write(lambda tx: records.trim(tx, log, through))
