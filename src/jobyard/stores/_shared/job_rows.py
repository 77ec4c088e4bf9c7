"""Codecs for the rows that the SQL stores have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from jobyard.domain.job import AttemptError, Job, LogLine, Progress, State, Step
from jobyard.domain.retry import DEFAULT_BACKOFF, Backoff
from jobyard.domain.schedule import Verdict
from jobyard.ports.schedule_store import TickInfo


@dataclass(slots=True)
class JobExtras:
    """The rows that belong to a job beside its own."""

    progress: Progress | None = None
    errors: list[AttemptError] = field(default_factory=list)
    log: list[LogLine] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    parent_id: str | None = None
    is_workflow: bool = False
    cancel_carried: str | None = None


def job_from_row(row: Sequence[Any], extras: JobExtras) -> Job:
    """Decode a row of the statement `load_job` or `load_jobs`."""
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
        cancel_requested=extras.cancel_carried if cancel is None else cancel,
        progress=extras.progress,
        result=None if result is None else msgspec.Raw(result),
        reason=reason,
        errors=tuple(extras.errors),
        log=tuple(extras.log),
        steps=tuple(extras.steps),
        parent_id=extras.parent_id,
        is_workflow=extras.is_workflow,
    )


@lru_cache(maxsize=256)
def decode_backoff(data: bytes | None) -> Backoff:
    return DEFAULT_BACKOFF if data is None else msgspec.json.decode(data, type=Backoff)


def ticks_from_rows(schedule: str, rows: Iterable[Sequence[Any]]) -> list[TickInfo]:
    """Decode rows of the statement `list_ticks`."""
    return [
        TickInfo(
            schedule=schedule,
            at=at,
            verdict=Verdict(verdict),
            job_id=job_id,
            first=first,
            count=count,
            decided_at=decided_at,
        )
        for at, verdict, job_id, first, count, decided_at in rows
    ]
