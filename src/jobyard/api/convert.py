"""Conversion of domain objects to the schemas of the API."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from jobyard.api.schemas import jobs as schemas
from jobyard.api.schemas.queues import GroupView, QueueView, SettingsView, WorkerView
from jobyard.domain.access import Principal
from jobyard.domain.explain import Explanation
from jobyard.domain.instant import FOREVER, Instant, rfc3339
from jobyard.domain.job import Job, QueueSettings
from jobyard.domain.tags import SUBMITTED_BY, is_reserved
from jobyard.ports.admin_store import GroupInfo, QueueInfo
from jobyard.ports.schedule_store import WorkerInfo

# Unique keys with this prefix are reserved: callers can neither set nor see them.
IDEMPOTENCY = "idempotency:"


def owner_tag(principal: Principal) -> str:
    """The reserved tag of the jobs that this principal submitted."""
    return SUBMITTED_BY + principal.id


def time_text(instant: Instant | None) -> str | None:
    """
    >>> time_text(1_500), time_text(None), time_text(FOREVER)
    ('1970-01-01T00:00:01.500Z', None, None)
    """
    return None if instant is None or instant >= FOREVER else rfc3339(instant)


def job_summary(job: Job) -> schemas.JobSummary:
    return schemas.JobSummary(**_facts(job))


def job_view(job: Job) -> schemas.JobView:
    return schemas.JobView(
        **_facts(job),
        log=tuple(schemas.LogLineView(**_timed(line)) for line in job.log),
        steps=tuple(
            schemas.StepView(
                **_fields(step)
                | {"started_at": time_text(step.started_at or None), "finished_at": time_text(step.finished_at)}
            )
            for step in job.steps
        ),
        timeline=timeline(job),
    )


def _facts(job: Job) -> dict[str, Any]:
    facts = {name: getattr(job, name) for name in _SAME}
    facts["tags"] = tuple(tag for tag in job.tags if not is_reserved(tag))
    owners = (tag.removeprefix(SUBMITTED_BY) for tag in job.tags if tag.startswith(SUBMITTED_BY))
    facts["submitted_by"] = next(owners, None)
    if job.unique_key is not None and job.unique_key.startswith(IDEMPOTENCY):
        facts["unique_key"] = None
    for name in ("created_at", "run_at", "started_at", "finished_at"):
        facts[name] = time_text(getattr(job, name))
    facts["progress"] = None if job.progress is None else schemas.ProgressView(**_timed(job.progress))
    facts["errors"] = tuple(schemas.ErrorView(**_timed(error)) for error in job.errors)
    return facts


_SAME = tuple(name for name in schemas.JobSummary.__struct_fields__ if name in Job.__struct_fields__)


def timeline(job: Job) -> tuple[schemas.TimelineEntry, ...]:
    """The history of a job, oldest first. Of earlier attempts only the end is stored."""
    found: list[tuple[Instant, schemas.TimelineEntry]] = []

    def add(at: Instant | None, what: Any, detail: str = "") -> None:
        if at is not None and at < FOREVER:
            found.append((at, schemas.TimelineEntry(at=rfc3339(at), what=what, detail=detail)))

    add(job.created_at, "created")
    for error in job.errors:
        add(error.at, "attempt_ended", f"attempt {error.attempt}: {error.ending}: {error.message}")
    if job.run_at > job.created_at:
        add(job.run_at, "due")
    add(job.started_at, "started", f"attempt {job.attempt}" + (f" on {job.worker}" if job.worker else ""))
    add(job.finished_at, "finished", str(job.state) + (f": {job.reason}" if job.reason else ""))
    return tuple(entry for _, entry in sorted(found, key=lambda each: each[0]))


def explanation_view(explanation: Explanation) -> schemas.ExplanationView:
    causes = tuple(schemas.CauseView(**_fields(cause)) for cause in explanation.causes)
    return schemas.ExplanationView(**(_fields(explanation) | {"causes": causes}))


def settings_view(settings: QueueSettings) -> SettingsView:
    return SettingsView(**_fields(settings))


QUEUE_COUNTS = ("waiting", "delayed", "running", "completed", "failed", "cancelled")


def queue_view_without_counts(info: QueueInfo) -> QueueView:
    return msgspec.structs.replace(queue_view(info), **dict.fromkeys(QUEUE_COUNTS))


def queue_view(info: QueueInfo, workers: Iterable[WorkerInfo] | None = None) -> QueueView:
    """With workers, includes the jobs that they finished in the last minute."""
    rate = None if workers is None else finished_per_minute(info.name, workers)
    declared = None if info.declared_settings is None else settings_view(info.declared_settings)
    settings = {"settings": settings_view(info.settings), "declared_settings": declared}
    return QueueView(**(_fields(info) | settings | {"finished_per_minute": rate}))


def finished_per_minute(queue: str, workers: Iterable[WorkerInfo]) -> int:
    return sum(worker.finished_per_minute.get(queue, 0) for worker in workers)


def group_view(info: GroupInfo) -> GroupView:
    return GroupView(**_fields(info))


def worker_view(info: WorkerInfo, queues: Collection[str] | None = ()) -> WorkerView:
    """With `queues`, includes the rates of these queues only; with None, no rates."""
    facts = {name: getattr(info, name) for name in WorkerView.__struct_fields__}
    rates = () if queues is None else info.finished_per_minute.items()
    facts["finished_per_minute"] = {name: rate for name, rate in rates if not queues or name in queues}
    facts |= {"started_at": rfc3339(info.started_at), "seen_at": rfc3339(info.seen_at)}
    return WorkerView(**facts)


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    """Fields by name, without converting nested structs."""
    return {name: getattr(value, name) for name in value.__struct_fields__}


def _timed(value: Any) -> dict[str, Any]:
    return _fields(value) | {"at": rfc3339(value.at)}
