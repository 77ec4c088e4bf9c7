"""Codec: jobs as rows, and rows as jobs."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import AttemptError, Job, LogLine, NewJob, Parent, Progress, Step, UniqueScope
from jobyard.domain.retry import DEFAULT_BACKOFF
from jobyard.stores._shared.job_rows import JobExtras, job_from_row
from jobyard.stores.sqlite.sql import SQL

# Bits of the column `flags`: what settling a job has to do beside the common case.
RELEASES_KEY, HAS_PRIVATE_PAYLOAD, HAS_TAGS, IS_CHILD, IS_WORKFLOW, HAS_HISTORY = 1, 2, 4, 8, 16, 32


def json_list(values: Sequence[int] | Sequence[str]) -> str:
    """Encode values for `IN (SELECT value FROM json_each(?))`, which costs a fraction of one statement per value."""
    return msgspec.json.encode(values).decode()


def job_row(job: NewJob, sequence: int, run_at: Instant, now: Instant) -> tuple[object, ...]:
    """Return the parameters of `insert_job`."""
    unique = job.unique
    flags = HAS_PRIVATE_PAYLOAD if job.private_payload is not None else 0
    if unique is not None and unique.scope is UniqueScope.ACTIVE:
        flags |= RELEASES_KEY
    if job.tags:
        flags |= HAS_TAGS
    if job.parent is not None:
        flags |= IS_CHILD
    if job.is_workflow:
        flags |= IS_WORKFLOW
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
        None if job.backoff is DEFAULT_BACKOFF else msgspec.json.encode(job.backoff),
        run_at,
        now,
        None if unique is None else unique.key,
        msgspec.json.encode(job.tags).decode() if job.tags else None,
        None,
        None,
        flags,
    )


def claim_row(row: tuple[object, ...]) -> tuple[object, ...]:
    """Return the columns of a claim (`next_jobs_of_group`), from a row that `job_row` made."""
    sequence, job_id, kind, _, _, priority, payload, private, most, used, deaths, timeout, backoff = row[:13]
    signal, flags = row[18:]
    return (-priority, sequence, job_id, kind, most, used, deaths, payload, private, timeout, backoff, signal, flags)  # type: ignore[operator]  # a number


def load_job(connection: sqlite3.Connection, job_id: str) -> Job | None:
    row = connection.execute(SQL["load_job"], (job_id,)).fetchone()
    return None if row is None else decode_job(connection, row, whole=True)


def decode_job(connection: sqlite3.Connection, row: tuple[Any, ...], *, whole: bool) -> Job:
    """Decode a row of `load_job`; without `whole` the job has no log lines, steps, tracebacks and parent."""
    extras = JobExtras(is_workflow=bool(row[29] & IS_WORKFLOW))
    for what, _, data in connection.execute(SQL["list_extras"], (row[0],)):
        if what == "error":
            error = msgspec.json.decode(data, type=AttemptError)
            extras.errors.append(error if whole else msgspec.structs.replace(error, traceback=None))
        elif what == "progress":
            extras.progress = msgspec.json.decode(data, type=Progress)
        elif what == "cancel":
            extras.cancel_carried = data.decode()
        elif whole and what == "log":
            extras.log.append(msgspec.json.decode(data, type=LogLine))
        elif whole and what == "step":
            extras.steps.append(msgspec.json.decode(data, type=Step))
        elif whole and what == "parent":
            extras.parent_id = msgspec.json.decode(data, type=Parent).job_id
    return job_from_row(row, extras)
