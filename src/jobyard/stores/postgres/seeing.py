"""A job as people see it, from its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import AttemptError, Job, LogLine, Progress, State, Step
from jobyard.stores.postgres.columns import decode_backoff
from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.statements import Statements

HAS_EXTRAS = 8
EVERYTHING = ["error", "log", "progress", "step"]
# A list shows neither log lines nor steps.
IN_A_LIST = ["error", "progress"]


class Extras:
    """What hangs on a job."""

    __slots__ = ("errors", "log", "progress", "steps")

    def __init__(self) -> None:
        self.progress: Progress | None = None
        self.errors: list[AttemptError] = []
        self.log: list[LogLine] = []
        self.steps: list[Step] = []

    def add(self, what: str, at: Instant, finished_at: Instant | None, data: bytes, *, whole: bool) -> None:
        replace = msgspec.structs.replace
        if what == "error":
            error = replace(msgspec.json.decode(data, type=AttemptError), at=at)
            self.errors.append(error if whole else replace(error, traceback=None))
        elif what == "progress":
            self.progress = replace(msgspec.json.decode(data, type=Progress), at=at)
        elif what == "log":
            self.log.append(replace(msgspec.json.decode(data, type=LogLine), at=at))
        elif what == "step":
            step = msgspec.json.decode(data, type=Step)
            self.steps.append(replace(step, started_at=at, finished_at=finished_at))


NO_EXTRAS = Extras()


async def see(
    connection: Connection, statements: Statements, now: Instant | None, ids: Sequence[str], *, whole: bool = True
) -> dict[str, Job]:
    """Those of the jobs that exist."""
    rows = await connection.fetch(statements["see_job"], now, list(ids))
    extras: dict[int, Extras] = {row[0]: Extras() for row in rows if row[-1] & HAS_EXTRAS}
    if extras:
        kinds = EVERYTHING if whole else IN_A_LIST
        for sequence, *item in await connection.fetch(statements["list_extras"], list(extras), kinds):
            extras[sequence].add(*item, whole=whole)
    return {row[1]: job_of(row, extras.get(row[0], NO_EXTRAS)) for row in rows}


def job_of(row: Sequence[Any], extras: Extras) -> Job:
    (sequence, job_id, kind, queue, group, priority, payload, most, used, deaths, timeout, backoff) = row[:12]
    (run_at, created_at, unique_key, tags, waiting_for) = row[12:17]
    (attempt, started_at, worker, external_id, cancel) = row[17:22]
    (final, final_attempt, final_started, finished_at, final_worker, result, reason) = row[22:29]
    state = State(final) if final else State.RUNNING if attempt is not None else State.PENDING
    return Job(
        id=job_id,
        kind=kind,
        queue=queue,
        group=group or None,
        priority=priority,
        payload=msgspec.Raw(payload),
        state=state,
        attempt=final_attempt if final else attempt if attempt is not None else used,
        max_attempts=most,
        deaths=deaths,
        timeout_seconds=timeout,
        backoff=decode_backoff(backoff),
        run_at=run_at,
        sequence=sequence,
        unique_key=unique_key,
        tags=tuple(msgspec.json.decode(tags, type=list[str])) if tags else (),
        created_at=created_at,
        started_at=final_started if final else started_at,
        finished_at=finished_at,
        worker=final_worker if final else worker,
        external_id=external_id,
        waiting_for=waiting_for if state is State.PENDING else None,
        cancel_requested=cancel,
        progress=extras.progress,
        result=None if result is None else msgspec.Raw(result),
        reason=reason,
        errors=tuple(extras.errors),
        log=tuple(extras.log),
        steps=tuple(extras.steps),
    )
