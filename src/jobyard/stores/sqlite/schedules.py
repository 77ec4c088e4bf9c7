"""Schedules: armed revisions, ticks that are decided once, worker heartbeats."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import partial

import msgspec

from jobyard.domain.instant import FOREVER, Instant, after
from jobyard.domain.job import NewJob
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
from jobyard.stores._shared.job_rows import ticks_from_rows
from jobyard.stores._shared.tick_rules import TickBatch
from jobyard.stores.sqlite.codec import json_list
from jobyard.stores.sqlite.connection import SqliteConnection
from jobyard.stores.sqlite.insert import insert_jobs, key_holder
from jobyard.stores.sqlite.sql import SQL
from jobyard.stores.sqlite.transaction import Transaction


class SqliteSchedules:
    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection

    async def now(self) -> Instant:
        return self._connection.clock.now()

    async def arm(self, schedule: str, revision: int, since: Instant | None = None) -> bool:
        return await self._connection.write(lambda tx: arm(tx, schedule, revision, since))

    async def disarm(self, schedule: str, revision: int | None = None) -> bool:
        return await self._connection.write(lambda tx: disarm(tx, schedule, revision))

    async def armed(self, limit: int = 1000, after: str | None = None) -> list[ArmedSchedule]:
        return await self._connection.read(
            lambda reader: [ArmedSchedule(*row) for row in reader.execute(SQL["list_armed"], (after or "", limit))]
        )

    async def decide(self, ticks: Sequence[Tick]) -> list[Decided]:
        return await self._connection.write(lambda tx: decide(tx, ticks))

    async def ticks(self, schedule: str, limit: int = 50, before: Instant | None = None) -> list[TickInfo]:
        page = (schedule, FOREVER + 1 if before is None else before, limit)
        return await self._connection.read(lambda db: ticks_from_rows(schedule, db.execute(SQL["list_ticks"], page)))

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        def beat(tx: Transaction) -> None:
            if seconds <= 0:
                tx.cursor.execute(SQL["delete_worker"], (worker.id,))
            else:
                data = msgspec.json.encode(msgspec.structs.replace(worker, seen_at=tx.now))
                tx.cursor.execute(SQL["put_worker"], (worker.id, after(tx.now, seconds), data))

        await self._connection.write(beat, durable=False)

    async def workers(self) -> list[WorkerInfo]:
        now = self._connection.clock.now()
        return await self._connection.read(lambda reader: live_workers(reader, now))


def arm(tx: Transaction, schedule: str, revision: int, since: Instant | None) -> bool:
    parameters = {"schedule": schedule, "revision": revision, "since": since, "now": tx.now}
    return tx.bare_cursor.execute(SQL["arm"], parameters).rowcount > 0


def disarm(tx: Transaction, schedule: str, revision: int | None) -> bool:
    if tx.bare_cursor.execute(SQL["disarm"], {"schedule": schedule, "revision": revision}).rowcount == 0:
        return False
    tx.bare_cursor.execute(SQL["delete_ticks"], (schedule,))
    return True


def decide(tx: Transaction, ticks: Sequence[Tick]) -> list[Decided]:
    schedules = list({tick.schedule for tick in ticks})
    rows = tx.bare_cursor.execute(SQL["load_armed"], (json_list(schedules),)).fetchall()
    batch = TickBatch({row[0]: ArmedSchedule(*row) for row in rows}, partial(_holder, tx), partial(_is_full, tx))
    answers = [batch.decide(tick) for tick in ticks]
    if batch.jobs:
        insert_jobs(tx, batch.jobs)
    made = [
        (tick.schedule, tick.at, decided.verdict, decided.job_id, tick.since, tick.count, tx.now)
        for tick, decided in zip(ticks, answers, strict=True)
        if decided.decision is Decision.MADE
    ]
    tx.bare_cursor.executemany(SQL["insert_tick"], made)
    last = batch.decided_until
    tx.bare_cursor.executemany(SQL["save_decided"], [(until, schedule) for schedule, until in last.items()])
    tx.bare_cursor.executemany(SQL["trim_ticks"], [{"schedule": schedule, "keep": KEPT_TICKS} for schedule in last])
    return answers


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


def live_workers(connection: sqlite3.Connection, now: Instant) -> list[WorkerInfo]:
    rows = (
        (until, msgspec.json.decode(data, type=WorkerInfo)) for until, data in connection.execute(SQL["list_workers"])
    )
    return [worker for until, worker in rows if is_alive(worker.seen_at, until, now)]
