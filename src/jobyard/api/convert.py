"""Conversion of domain objects to the schemas of the API."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import msgspec

from jobyard.api.schemas import jobs as schemas
from jobyard.api.schemas.queues import GroupView, QueueView, SettingsView, WorkerView
from jobyard.domain.access import Principal
from jobyard.domain.explain import Explanation
from jobyard.domain.instant import FOREVER, Instant, as_datetime, as_instant, rfc3339
from jobyard.domain.job import Job, QueueSettings, State
from jobyard.domain.tags import SUBMITTED_BY, is_reserved
from jobyard.ports.admin_store import Filter, GroupInfo, QueueInfo
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


# Text for the server, datetime for programs.
ToTime: TypeAlias = Callable[[Instant], Any]


def known_time(instant: Instant | None, time: ToTime) -> Any:
    return None if instant is None or instant >= FOREVER else time(instant)


def filter_of(
    requested: schemas.JobFilter | None, states: tuple[State, ...] = (), ids: tuple[str, ...] | None = None
) -> Filter:
    """The conditions of a request as a store knows them; `states` apply where it names none."""
    wanted = requested or schemas.JobFilter()
    return Filter(
        ids=ids,
        queue=wanted.queue,
        group=wanted.group,
        kind=wanted.kind,
        states=wanted.state or states or None,
        tag=wanted.tag,
        unique_key=wanted.unique_key,
        text=wanted.text,
        payload=wanted.payload,
        created_after=None if wanted.created_after is None else as_instant(wanted.created_after),
        created_before=None if wanted.created_before is None else as_instant(wanted.created_before),
    )


def readable_job(job: Job) -> schemas.JobView:
    """A job for programs: its payload and result as data, its times as datetime."""
    return job_view(_with_data(job), as_datetime)


def readable_summary(job: Job) -> schemas.JobSummary:
    return job_summary(_with_data(job), as_datetime)


def _with_data(job: Job) -> Job:
    data: dict[str, Any] = {"payload": _decoded(job.payload)}
    if job.result is not None:
        data["result"] = _decoded(job.result)
    return msgspec.structs.replace(job, **data)


def _decoded(stored: bytes) -> Any:
    """As text if it is not JSON: another program may have written it, and the job must still be readable."""
    try:
        return msgspec.json.decode(stored)
    except (msgspec.DecodeError, RecursionError):
        return bytes(stored).decode("utf-8", "replace")


def job_summary(job: Job, time: ToTime = rfc3339) -> schemas.JobSummary:
    return schemas.JobSummary(**_facts(job, time))


def job_view(job: Job, time: ToTime = rfc3339) -> schemas.JobView:
    """A job as the server sends it: times as text, payload and result as the JSON that is stored."""
    return schemas.JobView(
        **_facts(job, time),
        log=tuple(schemas.LogLineView(**_timed(line, time)) for line in job.log),
        steps=tuple(
            schemas.StepView(
                **_fields(step)
                | {
                    "started_at": known_time(step.started_at or None, time),
                    "finished_at": known_time(step.finished_at, time),
                }
            )
            for step in job.steps
        ),
        timeline=timeline(job, time),
    )


def _facts(job: Job, time: ToTime) -> dict[str, Any]:
    facts = {name: getattr(job, name) for name in _SAME}
    facts["tags"] = tuple(tag for tag in job.tags if not is_reserved(tag))
    owners = (tag.removeprefix(SUBMITTED_BY) for tag in job.tags if tag.startswith(SUBMITTED_BY))
    facts["submitted_by"] = next(owners, None)
    if job.unique_key is not None and job.unique_key.startswith(IDEMPOTENCY):
        facts["unique_key"] = None
    for name in ("created_at", "run_at", "started_at", "finished_at"):
        facts[name] = known_time(getattr(job, name), time)
    facts["progress"] = None if job.progress is None else schemas.ProgressView(**_timed(job.progress, time))
    facts["errors"] = tuple(schemas.ErrorView(**_timed(error, time)) for error in job.errors)
    return facts


_SAME = tuple(name for name in schemas.JobSummary.__struct_fields__ if name in Job.__struct_fields__)


def timeline(job: Job, time: ToTime = rfc3339) -> tuple[schemas.TimelineEntry, ...]:
    """The history of a job, oldest first. Of earlier attempts only the end is stored."""
    found: list[tuple[Instant, schemas.TimelineEntry]] = []

    def add(at: Instant | None, what: Any, detail: str = "") -> None:
        if at is not None and at < FOREVER:
            found.append((at, schemas.TimelineEntry(at=time(at), what=what, detail=detail)))

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


QUEUE_COUNTS = ("waiting", "delayed", "running", "completed", "failed", "cancelled", "removed_by_cap")


def queue_view_without_counts(info: QueueInfo) -> QueueView:
    return msgspec.structs.replace(queue_view(info), **dict.fromkeys((*QUEUE_COUNTS, "removed_by_cap_at")))


def queue_view(info: QueueInfo, workers: Iterable[WorkerInfo] | None = None) -> QueueView:
    """With workers, includes the jobs that they finished in the last minute."""
    rate = None if workers is None else finished_per_minute(info.name, workers)
    declared = None if info.declared_settings is None else settings_view(info.declared_settings)
    facts: dict[str, Any] = {name: getattr(info, name) for name in ("name", "paused", "settings_origin", *QUEUE_COUNTS)}
    facts |= {"settings": settings_view(info.settings), "declared_settings": declared}
    facts["removed_by_cap_at"] = known_time(info.removed_by_cap_at, rfc3339)
    return QueueView(**facts, finished_per_minute=rate)


def finished_per_minute(queue: str, workers: Iterable[WorkerInfo]) -> int:
    return sum(worker.finished_per_minute.get(queue, 0) for worker in workers)


def group_view(info: GroupInfo) -> GroupView:
    return GroupView(**_fields(info))


def worker_view(info: WorkerInfo, time: ToTime = rfc3339) -> WorkerView:
    facts = {name: getattr(info, name) for name in WorkerView.__struct_fields__ if name in info.__struct_fields__}
    facts |= {"started_at": time(info.started_at), "seen_at": time(info.seen_at)}
    if not info.memory_bytes:
        facts |= {"memory_bytes": None, "cpu_seconds": None, "cpu_percent": None}
    return WorkerView(**facts)


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    """Fields by name, without converting nested structs."""
    return {name: getattr(value, name) for name in value.__struct_fields__}


def _timed(value: Any, time: ToTime) -> dict[str, Any]:
    return _fields(value) | {"at": time(value.at)}
