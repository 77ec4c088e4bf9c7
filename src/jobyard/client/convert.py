"""From what travelled back to what a store answers: times as instants, payloads as their JSON text."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from jobyard.api.schemas.jobs import ExplanationView, JobSummary, JobView
from jobyard.api.schemas.queues import GroupView, QueueView, WorkerView
from jobyard.domain.explain import Cause, Explanation
from jobyard.domain.instant import FOREVER, Instant, instant, rfc3339
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


def time(text: str | None) -> Instant | None:
    return None if text is None else instant(text)


def job_of(view: RawSummary | RawJob) -> Job:
    facts = {name: getattr(view, name) for name in _SAME}
    facts["payload"] = view.payload.copy()
    if view.submitted_by is not None:
        facts["tags"] = (*view.tags, SUBMITTED_BY + view.submitted_by)
    has_result = bytes(view.result) != NULL or view.state is State.COMPLETED
    facts["result"] = view.result.copy() if has_result else None
    facts["run_at"] = FOREVER if view.run_at is None else instant(view.run_at)
    for name in ("created_at", "started_at", "finished_at"):
        facts[name] = time(getattr(view, name))
    facts["progress"] = None if view.progress is None else Progress(**_timed(view.progress))
    facts["errors"] = tuple(AttemptError(**_timed(error)) for error in view.errors)
    if isinstance(view, RawJob):
        facts["log"] = tuple(LogLine(**_timed(line)) for line in view.log)
        facts["steps"] = tuple(Step(**_timed(step)) for step in view.steps)
    return Job(**facts)


_SAME = tuple(name for name in Job.__struct_fields__ if name in JobSummary.__struct_fields__)


def queue_of(view: QueueView) -> QueueInfo:
    facts = _fields(view) | {"settings": QueueSettings(**_fields(view.settings))}
    del facts["finished_per_minute"]  # the workers tell
    return QueueInfo(**facts)


def group_of(view: GroupView) -> GroupInfo:
    return GroupInfo(**_fields(view))


def worker_of(view: WorkerView) -> WorkerInfo:
    return WorkerInfo(**_timed(view))


def explanation_of(view: ExplanationView) -> Explanation:
    causes = tuple(Cause(cause.code, cause.sentence, cause.data) for cause in view.causes)
    return Explanation(**(_fields(view) | {"causes": causes}))


def conditions_of(where: Filter) -> dict[str, Any]:
    """The filter as the query of a list; ids are not asked for in this way."""
    words = {name: getattr(where, name) for name in ("queue", "group", "kind", "tag", "unique_key", "text")}
    words["state"] = where.states or ()
    for name in ("created_after", "created_before"):
        value = getattr(where, name)
        words[name] = None if value is None else rfc3339(value)
    return words


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


def _timed(value: msgspec.Struct) -> dict[str, Any]:
    """Its fields, with those that are times as instants."""
    return {name: time(each) if name == "at" or name.endswith("_at") else each for name, each in _fields(value).items()}
