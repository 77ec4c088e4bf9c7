"""The verbs of the clock: due instants, each decided once, and workers that are alive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob
from jobyard.domain.schedule import Verdict
from jobyard.ports.schedule_store import Armed, Decided, Decision, Tick, TickInfo, WorkerInfo
from jobyard.stores._shared.job_rows import ticks_from_rows
from jobyard.stores.postgres.columns import columns, milliseconds
from jobyard.stores.postgres.desk import Desk
from jobyard.stores.postgres.standing import workers


class TimekeepingVerbs(Desk):
    async def now(self) -> Instant:
        present = await self._value("now", self._now())
        assert isinstance(present, int)
        return present

    async def arm(self, schedule: str, revision: int, since: Instant | None = None) -> bool:
        return bool(await self._rows("arm", self._now(), schedule, revision, since))

    async def disarm(self, schedule: str, revision: int | None = None) -> bool:
        return bool(await self._value("disarm", schedule, revision))

    async def armed(self, limit: int = 1000, after: str | None = None) -> list[Armed]:
        return [Armed(*row) for row in await self._rows("list_armed", after, limit)]

    async def decide(self, ticks: Sequence[Tick]) -> list[Decided]:
        if not ticks:
            return []
        rows = await self._rows("decide", self._now(), *tick_columns(ticks))
        answers = [
            Decided(Decision(decision), None if verdict is None else Verdict(verdict), job_id)
            for decision, verdict, job_id in rows
        ]
        if any(answer.verdict is not None and answer.verdict.has_job for answer in answers):
            self._arrived()
        return answers

    async def ticks(self, schedule: str, limit: int = 50, before: Instant | None = None) -> list[TickInfo]:
        return ticks_from_rows(schedule, await self._rows("list_ticks", schedule, before, limit))

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        if seconds <= 0:
            await self._rows("delete_worker", worker.id)
        else:
            await self._rows("beat", self._now(), worker.id, milliseconds(seconds), msgspec.json.encode(worker))

    async def workers(self) -> list[WorkerInfo]:
        now = self._now()
        return await self._run(lambda connection, statements: workers(connection, statements, now))


def tick_columns(ticks: Sequence[Tick]) -> list[Any]:
    """From the schedules on, as jobyard_decide takes them; who has no job travels with one that has no id."""
    jobs = [tick.job or NewJob(id="", kind="", queue=tick.queue) for tick in ticks]
    _names, _strict, _ids, *rest = columns(jobs)
    return [
        [tick.schedule for tick in ticks],
        [tick.revision for tick in ticks],
        [tick.at for tick in ticks],
        [tick.since for tick in ticks],
        [tick.count for tick in ticks],
        [tick.verdict for tick in ticks],
        [tick.skip_if_held for tick in ticks],
        [None if tick.job is None else tick.job.id for tick in ticks],
        *rest,
    ]
