"""A store that records each call, and its result, in a file."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
import weakref
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from jobyard.domain.history import Delivery, HistoryEntry
from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob, QueueSettings
from jobyard.domain.lease import ExpiredLease, Lease, LeaseKey
from jobyard.domain.state import Settlement
from jobyard.errors import BadInput, JobNotFound, NotPossible
from jobyard.ports.admin_store import Action, Changed
from jobyard.ports.job_store import Exchange, Extended, Inserted, Report
from jobyard.ports.schedule_store import Decided, Tick
from jobyard.ports.store import Store
from jobyard.ports.workflow_store import Checkpoint
from jobyard.testing.history import events as e

T = TypeVar("T")
HARMLESS = (BadInput, JobNotFound, NotPossible)


class HistoryWriter:
    """The file of one process, appended line by line: a kill damages at most the last line."""

    def __init__(self, path: Path | str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        # Handles of other event loops may still write after the first is closed: the last one closes the file.
        weakref.finalize(self, os.close, self._file)
        self._encoder = msgspec.json.Encoder()
        self._calls = itertools.count(1)
        # The newline in front ends a line that an earlier process may have written only in part.
        self._write(b"\n", e.RecordingStarted(os.getpid(), time.monotonic_ns()))

    def write_call(self, request: e.Request) -> int:
        call = next(self._calls)
        # Read before the line is written: the recorded interval may be too long, never too short.
        self._write(b"", e.RecordedCall(call, time.monotonic_ns(), request))
        return call

    def write_result(self, call: int, response: e.Response) -> None:
        self._write(b"", e.RecordedResult(call, time.monotonic_ns(), response))

    def _write(self, prefix: bytes, line: e.Line) -> None:
        data = prefix + self._encoder.encode(line) + b"\n"
        # One write per line: a kill leaves it in the page cache as a whole, or not at all.
        if os.write(self._file, data) != len(data):
            raise OSError("Cannot record the history: a line was written only in part. Is the disk full?")


class RecordingStore:
    """Wraps the store of a process. Each process needs a file of its own."""

    def __init__(self, store: Store, path: Path | str | HistoryWriter) -> None:
        self._store = store
        self._journal = path if isinstance(path, HistoryWriter) else HistoryWriter(path)
        self.url, self.has_transactions, self.is_remote = store.url, store.has_transactions, store.is_remote
        # Verbs that are not recorded.
        self.open = store.open
        self.close = store.close
        self.settle = store.settle
        self.diagnose, self.risks = store.diagnose, store.risks
        self.migrations = store.migrations
        self.wait_for_work = store.wait_for_work
        self.wait_for_end = store.wait_for_end
        self.get = store.get
        self.find = store.find
        self.queues = store.queues
        self.remove_queue = store.remove_queue
        self.ages = store.ages
        self.groups = store.groups
        self.line = store.line
        self.position = store.position
        self.prune = store.prune
        self.audit = store.audit
        self.repair = store.repair
        self.now = store.now
        self.arm = store.arm
        self.armed = store.armed
        self.ticks = store.ticks
        self.heartbeat = store.heartbeat
        self.workers = store.workers
        self.put = store.put
        self.fetch = store.fetch
        self.fetch_all = store.fetch_all
        self.remove = store.remove
        self.append = store.append
        self.read = store.read
        self.trim = store.trim
        self.history = store.history
        self.histories = store.histories
        self.ended_jobs = store.ended_jobs
        self.forget_ended = store.forget_ended

    def shards(self) -> Sequence[Store]:
        return ()  # calls on the shards themselves would not be recorded

    def for_event_loop(self) -> Store:
        handle = self._store.for_event_loop()
        return self if handle is self._store else RecordingStore(handle, self._journal)

    async def _record(self, request: e.Request, verb: Awaitable[T], response: Callable[[T], e.Response]) -> T:
        call = self._journal.write_call(request)
        try:
            value = await verb
        except BaseException as error:
            self._journal.write_result(call, e.RecordedError(type(error).__name__, isinstance(error, HARMLESS)))
            raise
        # Recorded before the caller sees it, so that every token in use is in the history.
        self._journal.write_result(call, response(value))
        return value

    async def insert(self, jobs: Sequence[NewJob], transaction: Any = None) -> list[Inserted]:
        request = e.RecordedInsert(tuple(e.RecordedJob.of(job) for job in jobs), transaction is not None)
        verb = self._store.insert(jobs, transaction)
        return await self._record(request, verb, lambda rows: e.InsertReturned(tuple(rows)))

    async def decide(self, ticks: Sequence[Tick]) -> list[Decided]:
        request = e.RecordedDecide(tuple(e.RecordedTick.of(tick) for tick in ticks))
        return await self._record(request, self._store.decide(ticks), lambda decided: e.DecideReturned(tuple(decided)))

    async def disarm(self, schedule: str, revision: int | None = None) -> bool:
        return await self._record(e.RecordedDisarm(schedule), self._store.disarm(schedule, revision), e.DisarmReturned)

    async def exchange(
        self,
        worker: str,
        settlements: Sequence[Settlement],
        queues: Sequence[str],
        wanted: int,
        lease_seconds: float,
        until: asyncio.Future[None] | None = None,
    ) -> Exchange:
        request = e.RecordedExchange(
            worker=worker,
            settlements=tuple(e.RecordedSettlement.of(settlement) for settlement in settlements),
            queues=tuple(queues),
            wanted=wanted,
            lease_seconds=lease_seconds,
        )
        verb = self._store.exchange(worker, settlements, queues, wanted, lease_seconds, until)
        return await self._record(request, verb, _exchanged)

    async def extend(
        self, worker: str, keys: Sequence[LeaseKey], lease_seconds: float, *, unacknowledged: bool = False
    ) -> Extended:
        verb = self._store.extend(worker, keys, lease_seconds, unacknowledged=unacknowledged)
        request = e.RecordedExtend(tuple(keys), lease_seconds)
        return await self._record(request, verb, lambda response: e.LeasesReturned(response.lost))

    async def report(self, reports: Sequence[Report]) -> tuple[LeaseKey, ...]:
        request = e.RecordedReport(tuple(report.key for report in reports))
        return await self._record(request, self._store.report(reports), lambda lost: e.LeasesReturned(tuple(lost)))

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[tuple[HistoryEntry, ...] | None]:
        keys = tuple(checkpoint.key for checkpoint in checkpoints)

        def refused(recorded: list[tuple[HistoryEntry, ...] | None]) -> e.LeasesReturned:
            return e.LeasesReturned(tuple(key for key, entries in zip(keys, recorded, strict=True) if entries is None))

        return await self._record(e.RecordedCheckpoint(keys), self._store.checkpoint(checkpoints), refused)

    async def deliver(self, deliveries: Sequence[Delivery], ended: Sequence[str] = ()) -> None:
        job_ids = tuple(dict.fromkeys(delivery.job_id for delivery in deliveries))
        await self._record(e.RecordedDelivery(job_ids), self._store.deliver(deliveries, ended), _accepted)

    async def reclaim(
        self, limit: int = 1000, *, as_of: Instant | None = None, longest_seconds: float | None = None
    ) -> list[ExpiredLease]:
        verb = self._store.reclaim(limit, as_of=as_of, longest_seconds=longest_seconds)
        return await self._record(e.RecordedReclaim(limit), verb, lambda ended: e.ReclaimReturned(tuple(ended)))

    async def adopt(self, job: NewJob, worker: str, external_id: str, token: str | None = None) -> Lease:
        verb = self._store.adopt(job, worker, external_id, token)
        request = e.RecordedAdopt(e.RecordedJob.of(job))
        return await self._record(request, verb, lambda lease: e.AdoptReturned(e.RecordedLease.of(lease)))

    async def signal(self, job_id: str, name: str, data: bytes = b"null", *, signal_id: str | None = None) -> bool:
        verb = self._store.signal(job_id, name, data, signal_id=signal_id)
        return await self._record(e.RecordedSignal(job_id, name), verb, e.SignalReturned)

    async def change(
        self,
        action: Action,
        job_ids: Sequence[str],
        *,
        reason: str = "",
        priority: int = 0,
        unless_requested: bool = False,
    ) -> Changed:
        verb = self._store.change(action, job_ids, reason=reason, priority=priority, unless_requested=unless_requested)
        request = e.RecordedChange(action, tuple(job_ids), priority)
        return await self._record(request, verb, lambda response: e.ChangeReturned(tuple(response.changed)))

    async def configure(self, queue: str, settings: QueueSettings) -> None:
        await self._record(e.RecordedConfigure(queue, settings), self._store.configure(queue, settings), _accepted)

    async def set_paused(self, queue: str, group: str | None, paused: bool) -> None:
        verb = self._store.set_paused(queue, group, paused)
        await self._record(e.RecordedPause(queue, group, paused), verb, _accepted)

    async def set_limit(self, queue: str, group: str, limit: int | None) -> None:
        await self._record(e.RecordedLimit(queue, group, limit), self._store.set_limit(queue, group, limit), _accepted)


def _exchanged(response: Exchange) -> e.ExchangeReturned:
    return e.ExchangeReturned(
        revision=response.revision,
        now=response.now,
        refused=tuple(response.refused),
        leases=tuple(e.RecordedLease.of(lease) for lease in response.leases),
    )


def _accepted(_: None) -> e.NothingReturned:
    return e.NothingReturned()
