"""The verbs of the clock: schedules that fire once, and workers that are alive."""

from __future__ import annotations

import msgspec

from jobyard.domain.instant import Instant, after
from jobyard.domain.job import NewJob
from jobyard.ports.clock import Clock
from jobyard.ports.store import Inserted, WorkerInfo
from jobyard.stores.memory.desk import Desk
from jobyard.stores.memory.entrance import enter


class TimekeepingVerbs(Desk):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._fired: set[tuple[str, Instant]] = set()
        self._beats: dict[str, tuple[Instant, WorkerInfo]] = {}

    async def now(self) -> Instant:
        return self._clock.now()

    async def fire(self, schedule: str, tick: Instant, job: NewJob) -> Inserted | None:
        with self._changing() as now:
            if (schedule, tick) in self._fired:
                return None
            [inserted] = enter(self._shelf, [job], now)
            self._fired.add((schedule, tick))
            return inserted

    async def beat(self, worker: WorkerInfo, seconds: float) -> None:
        with self._looking() as now:
            if seconds <= 0:
                self._beats.pop(worker.id, None)
            else:
                self._beats[worker.id] = (after(now, seconds), msgspec.structs.replace(worker, seen_at=now))

    async def workers(self) -> list[WorkerInfo]:
        with self._looking() as now:
            return self._live_workers(now)

    def _live_workers(self, now: Instant) -> list[WorkerInfo]:
        return [worker for _, (until, worker) in sorted(self._beats.items()) if now < until]
