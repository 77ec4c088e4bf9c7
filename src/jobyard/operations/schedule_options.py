"""The options of a schedule: one table for Python, HTTP, the command line, YAML, the client and the docs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict

import msgspec

from jobyard.domain import options
from jobyard.domain.cron import Cron, zone
from jobyard.domain.due import next_instant
from jobyard.domain.instant import rfc3339
from jobyard.domain.job_options import JOB_OPTIONS, Seconds
from jobyard.domain.options import Option
from jobyard.domain.schedule import Missed, Overlap, Schedule
from jobyard.errors import BadOption
from jobyard.executors.python.payload import to_json

MAX_MISSED = 1000
MAX_JITTER_SECONDS = 86_400
NO_DEFAULTS: Mapping[str, Any] = {}


class CommonOptions(TypedDict, total=False):
    """Options that can be set and changed. Durations are seconds, or a timedelta."""

    tz: str | None
    queue: str | None
    group: str | None
    priority: int | None
    max_retry: int | None
    timeout: Seconds | None
    overlap: Overlap | str | None
    missed: Missed | str | None
    missed_limit: int | None
    jitter: Seconds | None
    start: datetime | None
    end: datetime | None


class ScheduleOptions(CommonOptions, total=False):
    """Keyword arguments of `client.add_schedule`. None means not given."""

    enabled: bool | None


class CronOptions(ScheduleOptions, total=False):
    """Keyword arguments of `@yard.cron`. None means not given."""

    name: str | None
    payload: Mapping[str, Any] | None


class ScheduleChanges(CommonOptions, total=False):
    """Keyword arguments of `client.edit_schedule`. None removes `group`, `timeout`, `start` or `end`."""

    expression: str
    kind: str
    payload: Mapping[str, Any]


def make_schedule(
    given: Mapping[str, Any], defaults: Mapping[str, Any] = NO_DEFAULTS, table: Mapping[str, Option] | None = None
) -> Schedule:
    """A schedule from options, named by field, or as in `table`. Raises BadOption.

    `defaults` are fields that hold where an option is not given.

    >>> make_schedule({"name": "report", "expression": "0 9 * * 1-5", "kind": "send"}).timezone
    'UTC'
    >>> make_schedule({"name": "report", "expression": "0 9 * * 1-5", "kind": "send", "timezon": "UTC"})
    Traceback (most recent call last):
      ...
    jobyard.errors.BadOption: Unknown schedule option timezon. Did you mean "timezone"?
    """
    for field in ("name", "expression", "kind"):
        if given.get(field) is None:
            raise BadOption(f"A schedule needs {'an' if field == 'expression' else 'a'} {field}.", option=field)
    fields = {**defaults, **options.check_options(table or BY_FIELD, given, "schedule")}
    return Schedule(**fields, declared_enabled=fields.get("enabled", True))


def checked_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Each option by itself, as a field of a schedule. Raises BadOption."""
    return options.check_options(BY_FIELD, given, "schedule")


def check_timing(schedule: Schedule, shortest_interval_seconds: float) -> None:
    """Raise BadOption for a schedule that would fire too often or never."""
    shortest = Cron(schedule.expression, schedule.timezone).shortest_seconds()
    if shortest < shortest_interval_seconds:
        raise BadOption(
            f'"{schedule.expression}" fires every {shortest} s; the shortest interval allowed is '
            f"{shortest_interval_seconds:g} s (scheduler.shortest_interval_seconds).",
            option="expression",
        )
    start, end = schedule.start_at, schedule.end_at
    if start is not None and end is not None and end < start:
        raise BadOption(f"end_at ({rfc3339(end)}) is before start_at ({rfc3339(start)}).", option="end_at")
    if next_instant(msgspec.structs.replace(schedule, since=0), 0) is None:
        between = "" if start is None and end is None else " between start_at and end_at"
        raise BadOption(f'"{schedule.expression}" never fires{between}.', option="expression")


def check_policies(schedule: Schedule) -> None:
    """Raise BadOption for a combination of `overlap` and `missed` that contradicts itself."""
    if schedule.missed is Missed.ALL and schedule.overlap is not Overlap.ALLOW:
        raise BadOption(
            f"Cannot combine missed all with overlap {schedule.overlap}: all but one of the made-up jobs would be "
            "skipped. Choose overlap allow (a group with a limit of 1 runs them one by one), or missed once.",
            option="missed",
        )
    if schedule.overlap is Overlap.QUEUE and schedule.missed is Missed.SKIP:
        raise BadOption(
            "Cannot combine missed skip with overlap queue: a tick may wait longer than its grace time and would then "
            "be dropped. Choose missed once, or overlap skip.",
            option="missed",
        )


def _expression(what: str, value: Any) -> str:
    if not isinstance(value, str):
        raise BadOption(f"{what} must be a cron expression such as */5 * * * *, not {options.shown(value)}.")
    Cron(value)
    return " ".join(value.split())


def _timezone(what: str, value: Any) -> str:
    if not isinstance(value, str):
        raise BadOption(f"{what} must be a time zone such as Asia/Seoul, not {options.shown(value)}.")
    zone(value)
    return value


def _payload(what: str, value: Any) -> msgspec.Raw:
    if not isinstance(value, Mapping):
        raise BadOption(f"{what} must be an object with the handler's parameters.")
    return msgspec.Raw(to_json(dict(value), "payload"))


def _jitter(what: str, value: Any) -> float:
    if options.check_seconds(what, value) > MAX_JITTER_SECONDS:
        raise BadOption(f"{what} must be at most {MAX_JITTER_SECONDS} seconds, not {options.shown(value)}.")
    return options.check_seconds(what, value)


SCHEDULE_OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option("name", "name", options.check_name, "The name of the schedule.", in_cli=False),
        Option("expression", "expression", _expression, "When it fires, as a cron expression.", in_cli=False),
        Option("kind", "kind", options.check_name, "Which handler runs its jobs.", in_cli=False),
        Option("payload", "payload", _payload, "An object with the handler's parameters.", in_cli=False),
        Option("tz", "timezone", _timezone, "The time zone, such as Asia/Seoul.", metavar="ZONE"),
        JOB_OPTIONS["queue"],
        Option(
            "group",
            "group",
            options.optional(options.check_name),
            "The group whose limit its jobs share.",
            metavar="NAME",
        ),
        JOB_OPTIONS["priority"],
        Option(
            "max_retry",
            "max_retry",
            options.integer(0, options.MAX_ATTEMPTS - 1),
            "How many times a failed job is retried, if not the handler's. max_attempts = max_retry + 1.",
            type=int,
            metavar="N",
        ),
        Option(
            "timeout",
            "timeout_seconds",
            options.optional(options.check_positive_seconds),
            "How long one attempt may take, if not the handler's.",
            type=float,
            metavar="SECONDS",
        ),
        Option("enabled", "enabled", options.check_boolean, "False: the schedule starts paused.", in_cli=False),
        Option(
            "overlap",
            "overlap",
            options.choice(Overlap),
            "While the job of an earlier tick is unfinished: insert the next one anyway, skip it, or let it wait.",
            type=Overlap,
        ),
        Option(
            "missed",
            "missed",
            options.choice(Missed),
            "Ticks that no scheduler was running for: make up for none, the newest, or all.",
            type=Missed,
        ),
        Option(
            "missed_limit",
            "missed_limit",
            options.integer(1, MAX_MISSED),
            "At most this many ticks are made up for with missed all.",
            type=int,
            metavar="N",
        ),
        Option(
            "jitter",
            "jitter_seconds",
            _jitter,
            "Each job starts up to this many seconds later, at random.",
            type=float,
            metavar="SECONDS",
        ),
        Option(
            "start",
            "start_at",
            options.optional(options.check_time),
            "The schedule does not fire before this time.",
            type=datetime,
            metavar="TIME",
        ),
        Option(
            "end",
            "end_at",
            options.optional(options.check_time),
            "The schedule does not fire after this time.",
            type=datetime,
            metavar="TIME",
        ),
    )
}
BY_FIELD: dict[str, Option] = {option.field: option for option in SCHEDULE_OPTIONS.values()}
