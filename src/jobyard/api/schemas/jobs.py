"""Schemas of jobs, and types that all schemas share.

Times are RFC 3339 in UTC with milliseconds; durations carry their unit in the name. Requests with unknown fields are
rejected; clients ignore unknown fields of responses, so that servers can add some.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from jobyard.api.schemas.problems import FieldError
from jobyard.api.schemas.readable import Readable
from jobyard.domain import options
from jobyard.domain.job import Ending, State, UniqueScope
from jobyard.domain.retry import Backoff
from jobyard.ports.admin_store import Action

MAX_BATCH = 1000
MAX_IDS = 10_000
MAX_BULK = 100_000
MAX_PAGE = 1000
MAX_WAIT_SECONDS = 60

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=options.MAX_NAME, pattern=rf"^[^{options.HIDDEN}]+$")]
Timestamp: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
AwareDatetime: TypeAlias = Annotated[datetime, Meta(tz=True)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=options.MAX_SECONDS)]
Priority: TypeAlias = Annotated[int, Meta(ge=-options.MAX_PRIORITY, le=options.MAX_PRIORITY)]
Limit: TypeAlias = Annotated[int, Meta(ge=0, le=options.MAX_LIMIT)]
Reason: TypeAlias = Annotated[str, Meta(max_length=options.MAX_REASON)]
PayloadCondition: TypeAlias = Annotated[str, Meta(max_length=500, pattern="^[^:]+:")]
Ids: TypeAlias = Annotated[tuple[Name, ...], Meta(max_length=MAX_IDS)]


class RequestSchema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of bodies and queries that a caller sends."""


# Submission


class FixedBackoff(RequestSchema, frozen=True, kw_only=True, tag="fixed", tag_field="type"):
    """The same delay after each failure."""

    seconds: Seconds


class ExponentialBackoff(RequestSchema, frozen=True, kw_only=True, tag="exponential", tag_field="type"):
    """Growing delays up to a maximum, with ±jitter so that many failed jobs do not retry at the same time."""

    base_seconds: Seconds = 2.0
    factor: Annotated[float, Meta(ge=0, le=1000)] = 2.0
    max_seconds: Seconds = 3600.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.1


class DelaysBackoff(RequestSchema, frozen=True, kw_only=True, tag="delays", tag_field="type"):
    """A delay for each failure; the last one repeats."""

    seconds: Annotated[tuple[Seconds, ...], Meta(min_length=1, max_length=100)]


class UniqueRequest(RequestSchema, frozen=True, kw_only=True):
    """At most one job with this key in the queue, within the scope."""

    key: Name
    scope: UniqueScope = UniqueScope.ACTIVE
    period_seconds: Seconds | None = None


class JobRequest(RequestSchema, frozen=True, kw_only=True):
    """A job to submit. Fields that are not given are as the handler declares them, or the default."""

    kind: Name
    payload: dict[str, Any] = {}
    private_payload: Any = None  # for the handler only: never shown, erased when the job completes
    queue: Name | None = None
    group: Name | None = None
    priority: Priority | None = None
    delay_seconds: Seconds | None = None
    run_at: AwareDatetime | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=options.MAX_ATTEMPTS)] | None = None
    timeout_seconds: Annotated[float, Meta(gt=0, le=options.MAX_SECONDS)] | None = None
    backoff: FixedBackoff | ExponentialBackoff | DelaysBackoff | None = None
    unique: UniqueRequest | None = None
    tags: Annotated[tuple[Name, ...], Meta(max_length=options.MAX_TAGS)] | None = None


class BatchRequest(RequestSchema, frozen=True, kw_only=True):
    jobs: Annotated[tuple[JobRequest, ...], Meta(min_length=1, max_length=MAX_BATCH)]


class JobAccepted(Readable, frozen=True, kw_only=True):
    """The job is stored. `created` is false if another job holds the unique key; `id` is then its id."""

    id: str
    kind: str
    queue: str
    created: bool


class BatchItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one job of a batch: its id, or why it was rejected."""

    status: int
    id: str | None = None
    created: bool | None = None
    code: str | None = None
    detail: str | None = None
    errors: tuple[FieldError, ...] = ()


class BatchResponse(msgspec.Struct, frozen=True, kw_only=True):
    accepted: int
    refused: int
    items: tuple[BatchItem, ...]  # in the order of the request


# Jobs. The server fills their times in as text: msgspec would write microseconds.


class ErrorView(Readable, frozen=True, kw_only=True):
    attempt: int
    ending: Ending
    message: str
    at: AwareDatetime
    type: str | None = None
    traceback: str | None = None
    worker: str | None = None


class ProgressView(Readable, frozen=True, kw_only=True):
    percent: float
    message: str
    data: Any
    at: AwareDatetime


class LogLineView(Readable, frozen=True, kw_only=True):
    at: AwareDatetime
    level: str
    message: str


class StepView(Readable, frozen=True, kw_only=True):
    name: str
    status: str
    attempt: int
    data: Any
    started_at: AwareDatetime | None
    finished_at: AwareDatetime | None


class TimelineEntry(Readable, frozen=True, kw_only=True):
    """One entry of the history of a job."""

    at: AwareDatetime
    what: Literal["created", "due", "started", "attempt_ended", "finished"]
    detail: str = ""


class JobSummary(Readable, frozen=True, kw_only=True):
    """A job as lists show it: without log lines, steps, tracebacks and timeline."""

    id: str
    kind: str
    queue: str
    group: str | None
    priority: int
    state: State
    payload: Any
    attempt: int  # the current or last attempt; 0 before the first
    max_attempts: int
    deaths: int  # workers that died while running it
    timeout_seconds: float | None
    backoff: Backoff
    sequence: int
    unique_key: str | None
    tags: tuple[str, ...]
    submitted_by: str | None  # the id of the token that submitted it over HTTP
    created_at: AwareDatetime
    run_at: AwareDatetime | None  # null: only after a signal
    started_at: AwareDatetime | None
    finished_at: AwareDatetime | None
    worker: str | None
    external_id: str | None
    waiting_for: str | None  # the signal that it is parked on
    is_workflow: bool = False  # a workflow function or file: `jobyard workflows show` has its history
    cancel_requested: str | None
    progress: ProgressView | None
    result: Any
    reason: str | None
    errors: tuple[ErrorView, ...]


class JobView(JobSummary, frozen=True, kw_only=True):
    """A job with its log, steps and timeline."""

    log: tuple[LogLineView, ...] = ()
    steps: tuple[StepView, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()

    def __repr__(self) -> str:
        return "Job" + super().__repr__().removeprefix("JobView")  # as programs import it


class JobPage(Readable, frozen=True, kw_only=True):
    """A page may be short or even empty and still have a token: continue until there is none."""

    items: tuple[JobSummary, ...]
    next_page_token: str | UnsetType = UNSET


class CauseView(Readable, frozen=True, kw_only=True):
    code: str
    sentence: str
    data: dict[str, Any]


class ExplanationView(Readable, frozen=True, kw_only=True):
    job_id: str
    state: State
    sentence: str
    causes: tuple[CauseView, ...]
    ahead_in_group: int
    groups_ahead: int
    counts_capped: bool


class JobCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of jobs by state. A number that equals the cap means that many or more."""

    counts: dict[str, int]
    cap: int
    is_complete: bool


# Actions


class CloneRequest(RequestSchema, frozen=True, kw_only=True):
    """What the new job has different from the old one."""

    queue: Name | None = None
    group: Name | None = None
    priority: Priority | None = None
    delay_seconds: Seconds | None = None
    payload: dict[str, Any] | None = None


class ReasonRequest(RequestSchema, frozen=True, kw_only=True):
    reason: Reason = ""


class PriorityRequest(RequestSchema, frozen=True, kw_only=True):
    priority: Priority


class SignalRequest(RequestSchema, frozen=True, kw_only=True):
    name: Name
    data: Any = None
    signal_id: Name | None = None


class SignalResponse(msgspec.Struct, frozen=True):
    woke: bool  # false: the job is not parked on it; the signal is stored until it is


class JobFilter(RequestSchema, frozen=True, kw_only=True):
    """Jobs that meet all given conditions."""

    queue: Name | None = None
    group: Name | None = None
    kind: Name | None = None
    state: tuple[State, ...] = ()
    tag: Name | None = None
    unique_key: Name | None = None
    text: Annotated[str, Meta(min_length=1, max_length=options.MAX_NAME)] | None = None  # in the payload, any case
    payload: Annotated[tuple[PayloadCondition, ...], Meta(max_length=10)] = ()
    error: Annotated[str, Meta(min_length=1, max_length=500)] | None = None  # as dead letters are grouped
    created_after: AwareDatetime | None = None
    created_before: AwareDatetime | None = None


class BulkRequest(RequestSchema, frozen=True, kw_only=True):
    """Give either `ids` or `filter`. One call changes at most `limit` jobs; continue with `next_page_token`."""

    action: Action
    ids: Ids | None = None
    filter: JobFilter | None = None
    reason: Reason = ""
    priority: Priority | None = None  # for `prioritise`
    limit: Annotated[int, Meta(ge=1, le=MAX_BULK)] = 10_000
    page_token: str | None = None


class RedriveRequest(RequestSchema, frozen=True, kw_only=True):
    """Dead letters to retry: give either `ids` or `filter`."""

    ids: Ids | None = None
    filter: JobFilter | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_BULK)] = 10_000
    page_token: str | None = None


class BulkResponse(Readable, frozen=True, kw_only=True):
    changed: int
    unchanged: int  # in a state that does not allow the action
    not_found: int | UnsetType = UNSET  # this and the next three only for a request by ids
    changed_ids: tuple[str, ...] | UnsetType = UNSET
    unchanged_ids: tuple[str, ...] | UnsetType = UNSET
    not_found_ids: tuple[str, ...] | UnsetType = UNSET
    next_page_token: str | UnsetType = UNSET  # more jobs match than one call changes


# Kinds


class KindView(Readable, frozen=True, kw_only=True):
    """A kind that the app of the server declares, with the defaults of its jobs."""

    name: str
    queue: str
    parameters: tuple[str, ...]
    max_attempts: int
    timeout_seconds: float | None
    is_workflow: bool = False


class KindList(Readable, frozen=True, kw_only=True):
    items: tuple[KindView, ...]
    any_kind: bool  # no app is loaded, so every kind is accepted
