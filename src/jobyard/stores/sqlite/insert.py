"""Insert: many jobs in one step, unique keys, back-pressure."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from jobyard.domain.instant import FOREVER, Instant, after
from jobyard.domain.job import NewJob, Unique, UniqueScope
from jobyard.domain.retry import DEFAULT_BACKOFF, Backoff
from jobyard.errors import BadInput, QueueFull
from jobyard.ports.job_store import Inserted
from jobyard.stores.sqlite.line import INSERT_DELAYED, INSERT_READY, due_at
from jobyard.stores.sqlite.statements import sql
from jobyard.stores.sqlite.transaction import Fresh, GroupRow, Transaction

INSERT_JOB, INSERT_TAG = sql("insert_job"), sql("insert_tag")
LOAD_UNIQUE, PUT_UNIQUE = sql("load_unique"), sql("put_unique")

FREES_KEY, HAS_PRIVATE, HAS_TAGS = 1, 2, 4


def encode_backoff(backoff: Backoff) -> bytes:
    return msgspec.json.encode(backoff)


def insert(tx: Transaction, jobs: Sequence[NewJob]) -> list[Inserted]:
    answers: list[Inserted] = []
    rows: list[tuple[object, ...]] = []
    ready: list[tuple[str, str, int, int]] = []
    delayed: list[tuple[object, ...]] = []
    touched: dict[int, GroupRow] = {}
    now, sequence = tx.now, tx.sequence
    for job in jobs:
        if job.unique is not None:
            holder = hold_key(tx, job.queue, job.unique, job.id)
            if holder is not None:
                answers.append(Inserted(holder, False, 0))
                continue
        group = tx.group(job.queue, job.group or "")
        sequence += 1
        run_at = now if job.delay_seconds <= 0 and job.run_at is None else due_at(now, job.delay_seconds, job.run_at)
        rows.append(job_row(job, sequence, run_at, now))
        if run_at <= now:
            place = (job.queue, group.name, -job.priority, sequence)
            if group.waiting == 0 and len(jobs) == 1:
                tx.join(group, Fresh(place, for_worker(rows[-1])))
            else:
                ready.append(place)
            tx.arrive(group)
        else:
            delayed.append((run_at, sequence))
            tx.delay(group)
            tx.arrived = True
        touched[id(group)] = group
        if job.tags:
            tx.cursor.executemany(INSERT_TAG, [(tag, sequence) for tag in job.tags])
        answers.append(Inserted(job.id, True, sequence))
    refuse_overflow(touched.values())
    if rows:
        tx.sequence = sequence
        write_rows(tx, rows)
        if ready:
            # In the order of the key: neighbours share a page.
            ready.sort()
            tx.cursor.executemany(INSERT_READY, ready)
        if delayed:
            tx.cursor.executemany(INSERT_DELAYED, delayed)
        tx.bump()
    return answers


def write_rows(tx: Transaction, rows: list[tuple[object, ...]]) -> None:
    try:
        tx.bare_cursor.executemany(INSERT_JOB, rows)
    except sqlite3.IntegrityError as error:
        raise BadInput(f"A job with one of these ids exists already ({error}); ids must be new.") from error


def job_row(job: NewJob, sequence: int, run_at: Instant, now: Instant) -> tuple[object, ...]:
    unique = job.unique
    flags = HAS_PRIVATE if job.private_payload is not None else 0
    if unique is not None and unique.scope is UniqueScope.ACTIVE:
        flags |= FREES_KEY
    if job.tags:
        flags |= HAS_TAGS
    return (
        sequence,
        job.id,
        job.kind,
        job.queue,
        job.group or "",
        job.priority,
        job.payload,
        job.private_payload,
        job.max_attempts,
        0,
        0,
        job.timeout_seconds,
        None if job.backoff is DEFAULT_BACKOFF else encode_backoff(job.backoff),
        run_at,
        now,
        None if unique is None else unique.key,
        msgspec.json.encode(job.tags).decode() if job.tags else None,
        None,
        None,
        flags,
    )


def for_worker(row: tuple[object, ...]) -> tuple[object, ...]:
    """The columns that a claim picks, of a row that `job_row` made."""
    sequence, job_id, kind, _, _, priority, payload, private, most, used, deaths, timeout, backoff = row[:13]
    signal, flags = row[18:]
    return (-priority, sequence, job_id, kind, most, used, deaths, payload, private, timeout, backoff, signal, flags)  # type: ignore[operator]  # a number


def hold_key(tx: Transaction, queue: str, unique: Unique, job_id: str) -> str | None:
    """Take the key for the job; answers the holder's id if it is held."""
    holder = key_holder(tx, queue, unique.key)
    if holder is not None:
        return holder
    until = None
    if unique.scope is UniqueScope.PERIOD:
        until = after(tx.now, unique.period_seconds or 0.0)
    elif unique.scope is UniqueScope.FOREVER:
        until = FOREVER
    tx.cursor.execute(PUT_UNIQUE, (queue, unique.key, job_id, until))
    return None


def key_holder(tx: Transaction, queue: str, key: str) -> str | None:
    row = tx.cursor.execute(LOAD_UNIQUE, (queue, key)).fetchone()
    return str(row[0]) if row is not None and (row[1] is None or row[1] > tx.now) else None


def refuse_overflow(groups: Iterable[GroupRow]) -> None:
    """Back-pressure: raising here undoes the whole insert."""
    for group in groups:
        queue, settings = group.queue, group.queue.settings
        if settings.max_waiting is not None and queue.waiting + queue.delayed > settings.max_waiting:
            raise QueueFull(
                f"Queue {queue.name} may hold {settings.max_waiting} waiting jobs and this would be more. "
                "Nothing was inserted; try again when some have run, or raise max_waiting."
            )
        most = settings.max_waiting_per_group
        if most is not None and group.name and group.waiting + group.delayed > most:
            raise QueueFull(
                f"Group {group.name} of queue {queue.name} may hold {most} waiting jobs and this would be more. "
                "Nothing was inserted; try again when some have run, or raise max_waiting_per_group."
            )
