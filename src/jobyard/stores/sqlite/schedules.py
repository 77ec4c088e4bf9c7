"""Schedules: armed revisions, ticks that are decided once, worker heartbeats."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import partial

import msgspec

from jobyard.domain.instant import FOREVER, Instant, after
from jobyard.domain.job import NewJob
from jobyard.ports.schedule_store import KEPT_TICKS, Armed, Decided, Decision, Tick, TickInfo, WorkerInfo
from jobyard.stores._shared.job_rows import ticks_from_rows
from jobyard.stores._shared.tick_rules import TickBatch
from jobyard.stores.sqlite.codec import json_list
from jobyard.stores.sqlite.connection import SqliteConnection
from jobyard.stores.sqlite.insert import insert_jobs, key_holder
from jobyard.stores.sqlite.sql import SQL
from jobyard.stores.sqlite.transaction import Transaction

ARM = SQL["arm"]
DISARM = SQL["disarm"]
LOAD_ARMED = SQL["load_armed"]
LIST_ARMED = SQL["list_armed"]
SAVE_DECIDED = SQL["save_decided"]
INSERT_TICK = SQL["insert_tick"]
LIST_TICKS = SQL["list_ticks"]
TRIM_TICKS = SQL["trim_ticks"]
DELETE_TICKS = SQL["delete_ticks"]
PUT_WORKER = SQL["put_worker"]
LIST_WORKERS = SQL["list_workers"]
DELETE_WORKER = SQL["delete_worker"]


class SqliteSchedules:
    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection

    async def now(self) -> Instant:
        return self._connection.clock.now()

    async def arm(self, schedule: str, revision: int, since: Instant | None = None) -> bool:
        return await self._connection.write(lambda tx: arm(tx, schedule, revision, since))

    async def disarm(self, schedule: str, revision: int | None = None) -> bool:
        return await self._connection.write(lambda tx: disarm(tx, schedule, revision))

    async def armed(self, limit: int = 1000, after: str | None = None) -> list[Armed]:
        return await self._connection.read(
            lambda reader: [Armed(*row) for row in reader.execute(LIST_ARMED, (after or "", limit))]
        )

    async def decide(self, ticks: Sequence[Tick]) -> list[Decided]:
        return await self._connection.write(lambda tx: decide(tx, ticks))

    async def ticks(self, schedule: str, limit: int = 50, before: Instant | None = None) -> list[TickInfo]:
        page = (schedule, FOREVER + 1 if before is None else before, limit)
        return await self._connection.read(lambda reader: ticks_from_rows(schedule, reader.execute(LIST_TICKS, page)))

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        await self._connection.write(lambda tx: heartbeat(tx, worker, seconds), durable=False)

    async def workers(self) -> list[WorkerInfo]:
        now = self._connection.clock.now()
        return await self._connection.read(lambda reader: live_workers(reader, now))


def arm(tx: Transaction, schedule: str, revision: int, since: Instant | None) -> bool:
    parameters = {"schedule": schedule, "revision": revision, "since": since, "now": tx.now}
    return tx.bare_cursor.execute(ARM, parameters).rowcount > 0


def disarm(tx: Transaction, schedule: str, revision: int | None) -> bool:
    if tx.bare_cursor.execute(DISARM, {"schedule": schedule, "revision": revision}).rowcount == 0:
        return False
    tx.bare_cursor.execute(DELETE_TICKS, (schedule,))
    return True


def decide(tx: Transaction, ticks: Sequence[Tick]) -> list[Decided]:
    schedules = list({tick.schedule for tick in ticks})
    rows = tx.bare_cursor.execute(LOAD_ARMED, (json_list(schedules),)).fetchall()
    batch = TickBatch({row[0]: Armed(*row) for row in rows}, partial(_holder, tx), partial(_is_full, tx))
    answers = [batch.decide(tick) for tick in ticks]
    if batch.jobs:
        insert_jobs(tx, batch.jobs)
    _record(tx, ticks, answers)
    decided = batch.decided_until
    tx.bare_cursor.executemany(SAVE_DECIDED, [(until, schedule) for schedule, until in decided.items()])
    tx.bare_cursor.executemany(TRIM_TICKS, [{"schedule": schedule, "keep": KEPT_TICKS} for schedule in decided])
    return answers


def _record(tx: Transaction, ticks: Sequence[Tick], answers: Sequence[Decided]) -> None:
    tx.bare_cursor.executemany(
        INSERT_TICK,
        [
            {
                "schedule": tick.schedule,
                "at": tick.at,
                "verdict": decided.verdict,
                "job_id": decided.job_id,
                "first": tick.since,
                "count": tick.count,
                "decided_at": tx.now,
            }
            for tick, decided in zip(ticks, answers, strict=True)
            if decided.decision is Decision.MADE
        ],
    )


def _holder(tx: Transaction, job: NewJob) -> str | None:
    return None if job.unique is None else key_holder(tx, job.queue, job.unique.key)


def _is_full(tx: Transaction, queue: str, group: str | None, added: int) -> bool:
    row = tx.known_queue(queue)
    if row is None:
        return False
    if group is None:
        limit = row.settings.max_waiting
        return limit is not None and row.waiting + row.delayed + added > limit
    limit = row.settings.max_waiting_per_group
    if limit is None:
        return False
    group_row = tx.group(queue, group)
    return group_row.waiting + group_row.delayed + added > limit


def heartbeat(tx: Transaction, worker: WorkerInfo, seconds: float) -> None:
    if seconds <= 0:
        tx.cursor.execute(DELETE_WORKER, (worker.id,))
        return
    seen = msgspec.structs.replace(worker, seen_at=tx.now)
    tx.cursor.execute(PUT_WORKER, (worker.id, after(tx.now, seconds), msgspec.json.encode(seen)))


def live_workers(connection: sqlite3.Connection, now: Instant) -> list[WorkerInfo]:
    return [msgspec.json.decode(data, type=WorkerInfo) for (data,) in connection.execute(LIST_WORKERS, (now,))]
