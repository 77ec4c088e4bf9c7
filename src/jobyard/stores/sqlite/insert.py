"""Insert: unique keys, back-pressure, and many jobs in one step."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from jobyard.domain.instant import FOREVER, after
from jobyard.domain.job import NewJob, Unique, UniqueScope
from jobyard.errors import BadInput, QueueFull, duplicate_job_id
from jobyard.ports.job_store import Inserted
from jobyard.stores.sqlite.codec import claim_row, job_row, json_list
from jobyard.stores.sqlite.connection import SqliteConnection
from jobyard.stores.sqlite.queue_rows import GroupRow
from jobyard.stores.sqlite.sql import SQL
from jobyard.stores.sqlite.transaction import Transaction, UnwrittenJob


class SqliteInsert:
    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection

    async def insert(self, jobs: Sequence[NewJob], transaction: Any = None) -> list[Inserted]:
        if transaction is not None:
            return self._connection.in_transaction_of(transaction, lambda tx: insert_jobs(tx, jobs))
        return await self._connection.write(lambda tx: insert_jobs(tx, jobs))


def insert_jobs(tx: Transaction, jobs: Sequence[NewJob]) -> list[Inserted]:
    answers: list[Inserted] = []
    rows: list[tuple[object, ...]] = []
    ready: list[tuple[str, str, int, int]] = []
    delayed: list[tuple[object, ...]] = []
    touched: dict[int, GroupRow] = {}
    now, sequence = tx.now, tx.sequence
    known = _known_children(tx, jobs)
    for job in jobs:
        if job.unique is not None or known is not None:
            holder = _holder(tx, job, known)
            if holder is not None:
                answers.append(Inserted(holder, False, 0))
                continue
        group = tx.group(job.queue, job.group or "")
        sequence += 1
        run_at = job.run_at
        if run_at is None:
            run_at = now if job.delay_seconds <= 0 else after(now, job.delay_seconds)
        rows.append(job_row(job, sequence, run_at, now))
        if run_at <= now:
            position = (job.queue, group.name, -job.priority, sequence)
            if group.waiting == 0 and len(jobs) == 1:
                tx.add_unwritten(group, UnwrittenJob(position, claim_row(rows[-1])))
            else:
                ready.append(position)
            tx.add_due(group)
        else:
            delayed.append((run_at, sequence))
            tx.add_delayed(group)
            tx.has_work = True
        touched[id(group)] = group
        if job.tags:
            tx.cursor.executemany(SQL["insert_tag"], [(tag, sequence) for tag in job.tags])
        answers.append(Inserted(job.id, True, sequence))
    _require_room(touched.values())
    if rows:
        tx.sequence = sequence
        write_jobs(tx, rows)
        _write_places(tx, ready, delayed)
        if known is not None:
            _write_parents(tx, jobs, answers)
        tx.bump()
    return answers


def _write_places(tx: Transaction, ready: list[tuple[str, str, int, int]], delayed: list[tuple[object, ...]]) -> None:
    if ready:
        # Sorted by the key, because neighbours share a page.
        ready.sort()
        tx.cursor.executemany(SQL["insert_ready"], ready)
    if delayed:
        tx.cursor.executemany(SQL["insert_delayed"], delayed)


def _known_children(tx: Transaction, jobs: Sequence[NewJob]) -> set[str] | None:
    """Return the ids of jobs with a parent that exist; None if no job has one."""
    ids = [job.id for job in jobs if job.parent is not None]
    if not ids:
        return None
    return {known for (known,) in tx.bare_cursor.execute(SQL["list_known_ids"], (json_list(ids),))}


def _holder(tx: Transaction, job: NewJob, known: set[str] | None) -> str | None:
    """Return the job that exists instead: the holder of its unique key, or the child job itself; else None."""
    if known is not None and job.parent is not None and job.id in known:
        holder = None if job.unique is None else key_holder(tx, job.queue, job.unique.key)
        return holder or job.id
    holder = None if job.unique is None else acquire_key(tx, job.queue, job.unique, job.id)
    if holder is None and known is not None:
        known.add(job.id)
    return holder


def _write_parents(tx: Transaction, jobs: Sequence[NewJob], answers: Sequence[Inserted]) -> None:
    rows = [
        (answer.sequence, "parent", 0, msgspec.json.encode(job.parent))
        for job, answer in zip(jobs, answers, strict=True)
        if answer.created and job.parent is not None
    ]
    tx.bare_cursor.executemany(SQL["put_extra"], rows)


def write_jobs(tx: Transaction, rows: list[tuple[object, ...]]) -> None:
    try:
        tx.bare_cursor.executemany(SQL["insert_job"], rows)
    except sqlite3.IntegrityError as error:
        if "UNIQUE" not in str(error):
            raise BadInput(f"Cannot store a value: {error}.") from error
        # The rows before the rejected one are in the table until the transaction is rolled back.
        (last,) = tx.bare_cursor.execute(SQL["last_sequence"]).fetchone()
        raise duplicate_job_id(next(str(row[1]) for row in rows if row[0] > last)) from error


def acquire_key(tx: Transaction, queue: str, unique: Unique, job_id: str) -> str | None:
    """Acquire the key for the job; return the id of its holder if another job holds it."""
    holder = key_holder(tx, queue, unique.key)
    if holder is not None:
        return holder
    until = None
    if unique.scope is UniqueScope.PERIOD:
        until = after(tx.now, unique.period_seconds or 0.0)
    elif unique.scope is UniqueScope.FOREVER:
        until = FOREVER
    tx.cursor.execute(SQL["put_unique_key"], (queue, unique.key, job_id, until))
    return None


def key_holder(tx: Transaction, queue: str, key: str) -> str | None:
    row = tx.cursor.execute(SQL["load_unique_key"], (queue, key)).fetchone()
    return str(row[0]) if row is not None and (row[1] is None or row[1] > tx.now) else None


def _require_room(groups: Iterable[GroupRow]) -> None:
    """Raise QueueFull if a queue or group holds too many waiting jobs; this undoes the whole insert."""
    for group in groups:
        queue, settings = group.queue, group.queue.settings
        limit = settings.max_waiting
        if limit is not None and queue.waiting + queue.delayed > limit:
            raise QueueFull.over(limit, queue.name)
        limit = settings.max_waiting_per_group
        if limit is not None and group.name and group.waiting + group.delayed > limit:
            raise QueueFull.over(limit, queue.name, group.name)
