"""Schedules: armed revisions, ticks that are decided once, worker heartbeats."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import msgspec

from jobyard.domain.instant import Instant, after
from jobyard.ports.schedule_store import (
    KEPT_TICKS,
    ArmedSchedule,
    Decided,
    Decision,
    Tick,
    TickInfo,
    WorkerInfo,
    is_alive,
)
from jobyard.stores._shared.tick_rules import TickBatch
from jobyard.stores.memory.connection import MemoryConnection
from jobyard.stores.memory.insert import exceeded_limit, insert_jobs


class MemorySchedules:
    def __init__(self, connection: MemoryConnection) -> None:
        self._connection = connection
        self._armed: dict[str, ArmedSchedule] = {}
        self._ticks: dict[str, list[TickInfo]] = {}  # of each schedule, oldest first
        self._heartbeats: dict[str, tuple[Instant, WorkerInfo]] = {}

    async def now(self) -> Instant:
        return self._connection.clock.now()

    async def arm(self, schedule: str, revision: int, since: Instant | None = None) -> bool:
        with self._connection.locked() as now:
            present = self._armed.get(schedule)
            if present is None:
                self._armed[schedule] = ArmedSchedule(schedule, revision, now if since is None else since)
                return True
            if present.revision > revision:
                return False
            until = present.decided_until if since is None else max(since, present.decided_until)
            self._armed[schedule] = ArmedSchedule(schedule, revision, until)
            return True

    async def disarm(self, schedule: str, revision: int | None = None) -> bool:
        with self._connection.locked():
            present = self._armed.get(schedule)
            if present is None or (revision is not None and present.revision > revision):
                return False
            self._ticks.pop(schedule, None)
            del self._armed[schedule]
            return True

    async def armed(self, limit: int = 1000, after: str | None = None) -> list[ArmedSchedule]:
        with self._connection.locked():
            names = sorted(name for name in self._armed if after is None or name > after)
            return [self._armed[name] for name in names[:limit]]

    async def decide(self, ticks: Sequence[Tick]) -> list[Decided]:
        with self._connection.changing() as now:
            jobs = self._connection.jobs
            batch = TickBatch(
                self._armed,
                lambda job: jobs.unique_keys.holder(job, now),
                lambda queue, group, added: exceeded_limit(jobs, queue, group, added) is not None,
            )
            answers = [batch.decide(tick) for tick in ticks]
            insert_jobs(jobs, batch.jobs, now)
            for tick, decided in zip(ticks, answers, strict=True):
                if decided.decision is Decision.MADE:
                    self._record(tick, decided, now)
            return answers

    async def ticks(self, schedule: str, limit: int = 50, before: Instant | None = None) -> list[TickInfo]:
        with self._connection.locked():
            newest_first = reversed(self._ticks.get(schedule, []))
            return list(islice((tick for tick in newest_first if before is None or tick.at < before), limit))

    def _record(self, tick: Tick, decided: Decided, now: Instant) -> None:
        assert decided.verdict is not None
        kept = self._ticks.setdefault(tick.schedule, [])
        kept.append(
            TickInfo(
                schedule=tick.schedule,
                at=tick.at,
                verdict=decided.verdict,
                job_id=decided.job_id,
                first=tick.since,
                count=tick.count,
                decided_at=now,
            )
        )
        del kept[:-KEPT_TICKS]
        self._armed[tick.schedule] = ArmedSchedule(tick.schedule, tick.revision, tick.at)

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        with self._connection.locked() as now:
            if seconds <= 0:
                self._heartbeats.pop(worker.id, None)
            else:
                self._heartbeats[worker.id] = (after(now, seconds), msgspec.structs.replace(worker, seen_at=now))

    async def workers(self) -> list[WorkerInfo]:
        with self._connection.locked() as now:
            return self.live_workers(now)

    def live_workers(self, now: Instant) -> list[WorkerInfo]:
        return [info for _, (until, info) in sorted(self._heartbeats.items()) if is_alive(info.seen_at, until, now)]
