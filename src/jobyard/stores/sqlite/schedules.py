"""Schedules: which revision may decide due instants, and what became of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import partial

from jobyard.domain.instant import FOREVER, Instant
from jobyard.domain.job import NewJob
from jobyard.ports.schedule_store import KEPT_TICKS, Armed, Decided, Decision, Tick, TickInfo
from jobyard.stores._shared.job_rows import ticks_from_rows
from jobyard.stores._shared.tick_rules import TickBatch
from jobyard.stores.sqlite.insert import insert, key_holder
from jobyard.stores.sqlite.statements import as_list, sql
from jobyard.stores.sqlite.transaction import Transaction

ARM, DISARM, DELETE_TICKS = sql("arm"), sql("disarm"), sql("delete_ticks")
LOAD_ARMED, LIST_ARMED, SAVE_DECIDED = sql("load_armed"), sql("list_armed"), sql("save_decided")
INSERT_TICK, TRIM_TICKS, LIST_TICKS = sql("insert_tick"), sql("trim_ticks"), sql("list_ticks")


def arm(tx: Transaction, schedule: str, revision: int, since: Instant | None) -> bool:
    return tx.bare_cursor.execute(ARM, (schedule, revision, since, tx.now)).rowcount > 0


def disarm(tx: Transaction, schedule: str, revision: int | None) -> bool:
    if tx.bare_cursor.execute(DISARM, (schedule, revision)).rowcount == 0:
        return False
    tx.bare_cursor.execute(DELETE_TICKS, (schedule,))
    return True


def armed(connection: sqlite3.Connection, limit: int, after: str | None) -> list[Armed]:
    return [Armed(*row) for row in connection.execute(LIST_ARMED, (after or "", limit))]


def ticks(connection: sqlite3.Connection, schedule: str, limit: int, before: Instant | None) -> list[TickInfo]:
    rows = connection.execute(LIST_TICKS, (schedule, FOREVER + 1 if before is None else before, limit))
    return ticks_from_rows(schedule, rows)


def decide(tx: Transaction, ticks: Sequence[Tick]) -> list[Decided]:
    names = list({tick.schedule for tick in ticks})
    rows = tx.bare_cursor.execute(LOAD_ARMED, (as_list(names),)).fetchall()
    call = TickBatch({row[0]: Armed(*row) for row in rows}, partial(_holder, tx), partial(_is_full, tx))
    answers = [call.decide(tick) for tick in ticks]
    if call.jobs:
        insert(tx, call.jobs)
    _record(tx, ticks, answers)
    tx.bare_cursor.executemany(SAVE_DECIDED, [(until, name) for name, until in call.decided_until.items()])
    tx.bare_cursor.executemany(TRIM_TICKS, [(name, KEPT_TICKS - 1) for name in call.decided_until])
    return answers


def _record(tx: Transaction, ticks: Sequence[Tick], answers: Sequence[Decided]) -> None:
    tx.bare_cursor.executemany(
        INSERT_TICK,
        [
            (tick.schedule, tick.at, decided.verdict, decided.job_id, tick.since, tick.count, tx.now)
            for tick, decided in zip(ticks, answers, strict=True)
            if decided.decision is Decision.MADE
        ],
    )


def _holder(tx: Transaction, job: NewJob) -> str | None:
    return None if job.unique is None else key_holder(tx, job.queue, job.unique.key)


def _is_full(tx: Transaction, queue: str, group: str | None, more: int) -> bool:
    row = tx.known_queue(queue)
    if row is None:
        return False
    if group is None:
        most = row.settings.max_waiting
        return most is not None and row.waiting + row.delayed + more > most
    most = row.settings.max_waiting_per_group
    if most is None:
        return False
    its = tx.group(queue, group)
    return its.waiting + its.delayed + more > most
