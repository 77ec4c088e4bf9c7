"""Schemas of schedules and their ticks; the command line prints the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from jobyard.api.schemas.jobs import AwareDatetime, Name, Priority, RequestSchema, Seconds, Timestamp
from jobyard.domain.cron import cron
from jobyard.domain.due import next_instant
from jobyard.domain.instant import Instant, rfc3339
from jobyard.domain.job import State
from jobyard.domain.options import MAX_ATTEMPTS, MAX_SECONDS
from jobyard.domain.schedule import Missed, Overlap, PastTick, Schedule, Verdict

MAX_EXPRESSION = 200
MAX_NEXT = 100  # a rare expression takes long to compute

Expression: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_EXPRESSION)]
Zone: TypeAlias = Annotated[str, Meta(min_length=1, max_length=100)]
Retries: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_ATTEMPTS - 1)]
Timeout: TypeAlias = Annotated[float, Meta(gt=0, le=MAX_SECONDS)]
CatchUpLimit: TypeAlias = Annotated[int, Meta(ge=1, le=1000)]


class ScheduleRequest(RequestSchema, frozen=True, kw_only=True):
    """A job to insert at each tick of a cron expression, which has five fields, or six with seconds first."""

    name: Name
    expression: Expression
    kind: Name
    timezone: Zone = "UTC"
    payload: dict[str, Any] = msgspec.field(default_factory=dict)
    queue: Name | None = None
    group: Name | None = None
    priority: Priority | None = None
    max_retry: Retries | UnsetType = UNSET  # the handler's, else 3
    timeout_seconds: Timeout | UnsetType | None = UNSET  # the handler's, else 300; null: none
    enabled: bool = True
    overlap: Overlap = Overlap.SKIP
    missed: Missed = Missed.ONCE
    missed_limit: CatchUpLimit = 10  # for `missed: all`
    jitter_seconds: Seconds = 0.0
    start_at: AwareDatetime | None = None
    end_at: AwareDatetime | None = None

    def given(self) -> dict[str, Any]:
        """Options by field. A null is an absent option, except that `timeout_seconds: null` means no timeout."""
        return {
            name: value
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not UNSET and (value is not None or name == "timeout_seconds")
        }


class ScheduleChange(RequestSchema, frozen=True, kw_only=True):
    """Fields that are not given stay as they are."""

    expression: Expression | UnsetType = UNSET
    kind: Name | UnsetType = UNSET
    timezone: Zone | UnsetType = UNSET
    payload: dict[str, Any] | UnsetType = UNSET
    queue: Name | UnsetType = UNSET
    group: Name | UnsetType | None = UNSET
    priority: Priority | UnsetType = UNSET
    max_retry: Retries | UnsetType = UNSET
    timeout_seconds: Timeout | UnsetType | None = UNSET
    overlap: Overlap | UnsetType = UNSET
    missed: Missed | UnsetType = UNSET
    missed_limit: CatchUpLimit | UnsetType = UNSET
    jitter_seconds: Seconds | UnsetType = UNSET
    start_at: AwareDatetime | UnsetType | None = UNSET
    end_at: AwareDatetime | UnsetType | None = UNSET

    def given(self) -> dict[str, Any]:
        words = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in words.items() if value is not UNSET}


class TickView(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one tick, or on `count` consecutive missed ticks that end with it."""

    at: Timestamp
    verdict: Verdict
    job_id: str | None  # of a skipped tick: the job that was still active
    state: State | None  # of that job; null if there is none, or it was removed
    is_pruned: bool
    first_at: Timestamp
    count: int
    decided_at: Timestamp


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    expression: str
    timezone: str
    in_words: str
    kind: str
    payload: Any
    queue: str
    group: str | None
    priority: int
    max_retry: int
    timeout_seconds: float | None
    enabled: bool  # false: paused
    overlap: Overlap
    missed: Missed
    missed_limit: int
    jitter_seconds: float
    start_at: Timestamp | None
    end_at: Timestamp | None
    origin: str  # "managed", or where it is declared: "file", "code:<app>"
    is_declared: bool  # false: it is no longer declared; it fires until it is removed
    revision: int
    created_at: Timestamp
    changed_at: Timestamp
    next_at: Timestamp | None  # null: paused, or no more ticks
    silent_until: Timestamp | None  # set if the clock of the store was ahead; resume it to fire from now on
    recent: tuple[TickView, ...] | UnsetType = UNSET  # its newest ticks, newest first, if they are wanted


class SchedulePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page may be short or even empty and still have a token: continue until there is none."""

    items: tuple[ScheduleView, ...]
    next_page_token: str | UnsetType = UNSET


class RunResponse(msgspec.Struct, frozen=True):
    job_id: str


class NextTicksResponse(msgspec.Struct, frozen=True, kw_only=True):
    expression: str
    timezone: str
    in_words: str
    items: tuple[Timestamp, ...]
    valid: bool = True
    message: str | UnsetType = UNSET


class HistoryPage(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[TickView, ...]
    next_page_token: str | UnsetType = UNSET


_SAME = tuple(
    name
    for name in ScheduleView.__struct_fields__
    if name in Schedule.__struct_fields__ and not name.endswith("_at") and name != "payload"
)


def schedule_view(schedule: Schedule, now: Instant, silent_until: Instant | None = None) -> ScheduleView:
    words = {name: getattr(schedule, name) for name in _SAME}
    for name in ("start_at", "end_at", "created_at", "changed_at"):
        words[name] = _time(getattr(schedule, name))
    return ScheduleView(
        payload=msgspec.json.decode(schedule.payload),
        in_words=cron(schedule.expression, schedule.timezone).in_words(),
        next_at=_time(next_instant(schedule, silent_until or now) if schedule.enabled else None),
        silent_until=_time(silent_until),
        **words,
    )


def tick_view(past: PastTick) -> TickView:
    fields: dict[str, Any] = {
        name: getattr(past, name) for name in ("verdict", "job_id", "state", "is_pruned", "count")
    }
    fields |= {"at": rfc3339(past.at), "first_at": rfc3339(past.first), "decided_at": rfc3339(past.decided_at)}
    return TickView(**fields)


def next_ticks_response(expression: str, timezone: str, instants: Iterable[Instant]) -> NextTicksResponse:
    words = cron(expression, timezone).in_words()
    found = tuple(rfc3339(each) for each in instants)
    return NextTicksResponse(expression=expression, timezone=timezone, in_words=words, items=found)


def invalid_expression(expression: str, timezone: str, message: str) -> NextTicksResponse:
    return NextTicksResponse(
        expression=expression, timezone=timezone, in_words="", items=(), valid=False, message=message
    )


def _time(instant: Instant | None) -> str | None:
    return None if instant is None else rfc3339(instant)
