"""Schemas of live events and health."""

from __future__ import annotations

from typing import Any

import msgspec

from jobyard.api.schemas.jobs import JobSummary, JobView, Timestamp
from jobyard.api.schemas.queues import QueueView

PREFIX = "io.jobyard."
SNAPSHOT = "io.jobyard.snapshot.v1"
QUEUE_CHANGED = "io.jobyard.queue.changed.v1"
RESYNC = "io.jobyard.resync.v1"
STATS = "io.jobyard.stats.v1"


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event. `data` by type: EventsSnapshot, JobSnapshot, JobEventData, QueueView, StatsView, or nothing."""

    specversion: str
    id: str
    source: str
    type: str
    time: Timestamp
    subject: str = ""  # the job's id, or the queue's name
    data: Any = None


class JobEventData(msgspec.Struct, frozen=True, kw_only=True):
    """The job of an event; GET /v1/jobs/{id} returns all of it."""

    job_id: str
    kind: str
    queue: str
    group: str | None
    state: str | None
    attempt: int
    reason: str | None = None
    progress: ProgressEventData | None = None


class ProgressEventData(msgspec.Struct, frozen=True, kw_only=True):
    percent: float | None
    message: str
    data: Any = None


class JobSnapshot(msgspec.Struct, frozen=True):
    job: JobView


class EventsSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    queues: tuple[QueueView, ...]
    jobs: tuple[JobSummary, ...]  # the newest


def job_event_type(what: str) -> str:
    """
    >>> job_event_type("completed")
    'io.jobyard.job.completed.v1'
    """
    return f"{PREFIX}job.{what}.v1"


class CheckView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    ok: bool
    reason: str = ""


class HealthView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    status: str  # "ok" or "unavailable"
    reason: str = ""  # why it is unavailable
    version: str = ""
    uptime_seconds: float = 0.0
    checks: tuple[CheckView, ...] = ()
