"""Unique keys: which job holds which key, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

from jobyard.domain.instant import FOREVER, Instant, after
from jobyard.domain.job import NewJob, UniqueScope


@dataclass(slots=True, frozen=True)
class KeyHolder:
    job_id: str
    scope: UniqueScope
    until: Instant


class UniqueKeys:
    def __init__(self) -> None:
        self._holders: dict[tuple[str, str], KeyHolder] = {}

    def holder(self, job: NewJob, now: Instant) -> str | None:
        """Return the id of the job that holds this job's key, which may be the job itself."""
        if job.unique is None:
            return None
        holder = self._holders.get((job.queue, job.unique.key))
        if holder is None or holder.until <= now:
            return None
        return holder.job_id

    def acquire(self, job: NewJob, now: Instant) -> None:
        unique = job.unique
        if unique is None:
            return
        until = FOREVER
        if unique.scope is UniqueScope.PERIOD:
            until = after(now, unique.period_seconds or 0.0)
        self._holders[job.queue, unique.key] = KeyHolder(job.id, unique.scope, until)

    def release(self, job: NewJob) -> None:
        """Release the key of a job that ended or was deleted, if its scope is ACTIVE."""
        if job.unique is None or job.unique.scope is not UniqueScope.ACTIVE:
            return
        holder = self._holders.get((job.queue, job.unique.key))
        if holder is not None and holder.job_id == job.id and holder.scope is UniqueScope.ACTIVE:
            del self._holders[job.queue, job.unique.key]
