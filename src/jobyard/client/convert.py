"""Conversion of API views to the types of `Operations`: times as instants, payloads as JSON text."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from jobyard.api.convert import QUEUE_COUNTS
from jobyard.api.schemas.access import AuditView, TokenView
from jobyard.api.schemas.jobs import ExplanationView, JobSummary, JobView
from jobyard.api.schemas.queues import GroupView, QueueView, WorkerView
from jobyard.domain.access import AuditEntry, TokenInfo
from jobyard.domain.explain import Cause, Explanation
from jobyard.domain.instant import FOREVER, Instant, as_instant, instant, rfc3339
from jobyard.domain.job import AttemptError, Job, LogLine, Progress, QueueSettings, State, Step
from jobyard.domain.tags import SUBMITTED_BY
from jobyard.ports.admin_store import Filter, GroupInfo, QueueInfo
from jobyard.ports.schedule_store import WorkerInfo

NULL = b"null"


class RawSummary(JobSummary, frozen=True, kw_only=True):
    payload: Raw
    result: Raw


class RawJob(JobView, frozen=True, kw_only=True):
    payload: Raw
    result: Raw


class RawPage(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[RawSummary, ...]
    next_page_token: str | UnsetType = UNSET


def time(moment: str | datetime | None) -> Instant | None:
    if moment is None:
        return None
    return instant(moment) if isinstance(moment, str) else as_instant(moment)


def job_of(view: RawSummary | RawJob) -> Job:
    fields = {name: getattr(view, name) for name in _SAME}
    fields["payload"] = view.payload.copy()
    if view.submitted_by is not None:
        fields["tags"] = (*view.tags, SUBMITTED_BY + view.submitted_by)
    has_result = bytes(view.result) != NULL or view.state is State.COMPLETED
    fields["result"] = view.result.copy() if has_result else None
    fields["run_at"] = FOREVER if view.run_at is None else as_instant(view.run_at)
    for name in ("created_at", "started_at", "finished_at"):
        fields[name] = time(getattr(view, name))
    fields["progress"] = None if view.progress is None else Progress(**_timed(view.progress))
    fields["errors"] = tuple(AttemptError(**_timed(error)) for error in view.errors)
    if isinstance(view, RawJob):
        fields["log"] = tuple(LogLine(**_timed(line)) for line in view.log)
        fields["steps"] = tuple(Step(**_timed(step)) for step in view.steps)
    return Job(**fields)


_SAME = tuple(name for name in Job.__struct_fields__ if name in JobSummary.__struct_fields__)


def queue_of(view: QueueView) -> QueueInfo:
    fields = _fields(view) | {"settings": QueueSettings(**_fields(view.settings))}
    if view.declared_settings is not None:
        fields["declared_settings"] = QueueSettings(**_fields(view.declared_settings))
    fields |= {name: fields[name] or 0 for name in QUEUE_COUNTS}  # null: not for this token
    fields["removed_by_cap_at"] = time(view.removed_by_cap_at)
    del fields["finished_per_minute"]  # part of the workers here
    return QueueInfo(**fields)


def group_of(view: GroupView) -> GroupInfo:
    return GroupInfo(**_fields(view))


def worker_of(view: WorkerView) -> WorkerInfo:
    counts = {"running": view.running or 0, "completed": view.completed or 0}  # null: not for this token
    measured = {name: getattr(view, name) or 0 for name in ("memory_bytes", "cpu_seconds", "cpu_percent")}
    fields = _timed(view) | counts | measured
    # A server tells more of a worker than a store does.
    return WorkerInfo(**{name: fields[name] for name in WorkerInfo.__struct_fields__ if name in fields})


def explanation_of(view: ExplanationView) -> Explanation:
    causes = tuple(Cause(cause.code, cause.sentence, cause.data) for cause in view.causes)
    return Explanation(**(_fields(view) | {"causes": causes}))


def token_of(view: TokenView) -> TokenInfo:
    return TokenInfo(**{name: each for name, each in _timed(view).items() if name in TokenInfo.__struct_fields__})


def entry_of(view: AuditView) -> AuditEntry:
    return AuditEntry(**_timed(view))


def conditions_of(where: Filter) -> dict[str, Any]:
    """The filter as a query of a list, without its ids."""
    query = {name: getattr(where, name) for name in ("queue", "group", "kind", "tag", "unique_key", "text")}
    query |= {"state": where.states or (), "payload": where.payload}
    for name in ("created_after", "created_before"):
        value = getattr(where, name)
        query[name] = None if value is None else rfc3339(value)
    return query


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


def _timed(value: msgspec.Struct) -> dict[str, Any]:
    """The fields, times as instants."""
    return {name: time(each) if name == "at" or name.endswith("_at") else each for name, each in _fields(value).items()}
