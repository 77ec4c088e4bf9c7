"""Schedules: arm them, decide their ticks once, and keep the heartbeats of workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob
from jobyard.domain.schedule import Verdict
from jobyard.ports.schedule_store import (
    CLOCK_TOLERANCE_MS,
    ArmedSchedule,
    Decided,
    Decision,
    Tick,
    TickInfo,
    WorkerInfo,
)
from jobyard.stores._shared.job_rows import ticks_from_rows
from jobyard.stores.postgres.codec import JobColumns, job_columns, milliseconds
from jobyard.stores.postgres.connection import PostgresConnection
from jobyard.stores.postgres.notifier import PostgresNotifier
from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.statements import Statements


class TickColumns(NamedTuple):
    schedule: list[str]
    revision: list[int]
    at: list[Instant]
    first: list[Instant]
    count: list[int]  # type: ignore[assignment]  # hides tuple.count, which is not used
    verdict: list[str]
    skip: list[bool]


class PostgresSchedules:
    def __init__(self, connection: PostgresConnection, notifier: PostgresNotifier) -> None:
        self._connection = connection
        self._notifier = notifier

    async def now(self) -> Instant:
        return int(await self._connection.fetch_value("now", self._connection.now()))

    async def arm(self, schedule: str, revision: int, since: Instant | None = None) -> bool:
        return bool(await self._connection.fetch("arm", self._connection.now(), schedule, revision, since))

    async def disarm(self, schedule: str, revision: int | None = None) -> bool:
        return bool(await self._connection.fetch_value("disarm", schedule, revision))

    async def armed(self, limit: int = 1000, after: str | None = None) -> list[ArmedSchedule]:
        return [ArmedSchedule(*row) for row in await self._connection.fetch("list_armed", after, limit)]

    async def decide(self, ticks: Sequence[Tick]) -> list[Decided]:
        if not ticks:
            return []
        columns, jobs = tick_columns(ticks)
        rows = await self._connection.fetch("decide", self._connection.now(), *columns, *jobs)
        answers = [
            Decided(Decision(decision), None if verdict is None else Verdict(verdict), job_id)
            for decision, verdict, job_id in rows
        ]
        if any(answer.verdict is not None and answer.verdict.has_job for answer in answers):
            self._notifier.announce_work()
        return answers

    async def ticks(self, schedule: str, limit: int = 50, before: Instant | None = None) -> list[TickInfo]:
        return ticks_from_rows(schedule, await self._connection.fetch("list_ticks", schedule, before, limit))

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        if seconds <= 0:
            await self._connection.fetch("delete_worker", worker.id)
        else:
            data = msgspec.json.encode(worker)
            await self._connection.fetch("save_worker", self._connection.now(), worker.id, milliseconds(seconds), data)

    async def workers(self) -> list[WorkerInfo]:
        now = self._connection.now()
        return await self._connection.run(lambda connection, statements: live_workers(connection, statements, now))


def tick_columns(ticks: Sequence[Tick]) -> tuple[TickColumns, JobColumns]:
    """The ticks and their jobs as arrays; a tick without a job has one without an id."""
    jobs = job_columns([tick.job or NewJob(id="", kind="", queue=tick.queue) for tick in ticks])
    columns = TickColumns(
        [tick.schedule for tick in ticks],
        [tick.revision for tick in ticks],
        [tick.at for tick in ticks],
        [tick.since for tick in ticks],
        [tick.count for tick in ticks],
        [tick.verdict for tick in ticks],
        [tick.skip_if_held for tick in ticks],
    )
    return columns, jobs._replace(id=[None if tick.job is None else tick.job.id for tick in ticks])


async def live_workers(connection: Connection, statements: Statements, now: Instant | None) -> list[WorkerInfo]:
    rows = await connection.fetch(statements["list_workers"], now, CLOCK_TOLERANCE_MS)
    decode, replace = msgspec.json.decode, msgspec.structs.replace
    return [replace(decode(data, type=WorkerInfo), seen_at=seen_at) for seen_at, data in rows]
