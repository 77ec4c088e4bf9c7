"""A schedule from what a person wrote, checked before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from jobyard.domain.cron import Cron, zone
from jobyard.domain.due import next_instant
from jobyard.domain.instant import FOREVER, Instant, instant, rfc3339
from jobyard.domain.schedule import Missed, Overlap, Schedule
from jobyard.errors import BadOption, did_you_mean
from jobyard.executors.python.payload import to_json
from jobyard.operations import job_options as options

MAX_MISSED = 1000
MAX_JITTER_SECONDS = 86_400

E_ = TypeVar("E_", bound=StrEnum)


def definition(words: Mapping[str, Any]) -> Schedule:
    """
    >>> definition({"name": "report", "expression": "0 9 * * 1-5", "kind": "send"}).timezone
    'UTC'
    >>> definition({"name": "report", "expression": "0 9 * * 1-5", "kind": "send", "timezon": "UTC"})
    Traceback (most recent call last):
      ...
    jobyard.errors.BadOption: A schedule has no timezon. Did you mean "timezone"?
    """
    for word in ("name", "expression", "kind"):
        if words.get(word) is None:
            raise _refused(word, f"A schedule needs {'an' if word == 'expression' else 'a'} {word}.")
    fields = checked(words)
    return Schedule(**fields, declared_enabled=fields.get("enabled", True))


def checked(words: Mapping[str, Any]) -> dict[str, Any]:
    """Each word by itself, as a field of a schedule."""
    fields: dict[str, Any] = {}
    for word, value in words.items():
        if word not in _WORDS:
            raise _refused(word, f"A schedule has no {str(word)[:50]}.{did_you_mean(str(word)[:50], _WORDS)}")
        try:
            fields[word] = _WORDS[word](value)
        except BadOption as error:
            error.option = word
            raise
    return fields


def check_timing(schedule: Schedule, shortest_interval_seconds: float) -> None:
    """Refuse what would fire too often or never."""
    shortest = Cron(schedule.expression, schedule.timezone).shortest_seconds()
    if shortest < shortest_interval_seconds:
        raise _refused(
            "expression",
            f'"{schedule.expression}" fires again after {shortest} s; the shortest interval allowed is '
            f"{shortest_interval_seconds:g} s (scheduler.shortest_interval_seconds).",
        )
    start, end = schedule.start_at, schedule.end_at
    if start is not None and end is not None and end < start:
        raise _refused("end_at", f"It would end ({rfc3339(end)}) before it starts ({rfc3339(start)}).")
    if next_instant(msgspec.structs.replace(schedule, since=0), 0) is None:
        between = "" if start is None and end is None else " between its start and its end"
        raise _refused("expression", f'"{schedule.expression}" never fires{between}.')


def check_policies(schedule: Schedule) -> None:
    """Refuse what cannot go together."""
    if schedule.missed is Missed.ALL and schedule.overlap is not Overlap.ALLOW:
        raise _refused(
            "missed",
            f"With overlap {schedule.overlap} the made-up jobs of missed all would keep each other out, all but one. "
            "Choose overlap allow (a group with a limit of 1 has them run one by one), or missed once.",
        )
    if schedule.overlap is Overlap.QUEUE and schedule.missed is Missed.SKIP:
        raise _refused(
            "missed",
            "With overlap queue a tick may wait longer than its grace time, and with missed skip it would then be "
            "dropped. Choose missed once, or overlap skip.",
        )


def _refused(word: str, message: str) -> BadOption:
    return BadOption(message, option=word)


def _name(value: Any) -> str:
    if value in (".", ".."):  # a URL cannot hold them
        raise BadOption(f'A schedule cannot be named "{value}".')
    return options.name("schedule", value)


def _expression(value: Any) -> str:
    if not isinstance(value, str):
        raise BadOption(f"expression is cron text such as */5 * * * *, not {str(value)[:50]!r}.")
    Cron(value)
    return " ".join(value.split())


def _timezone(value: Any) -> str:
    if not isinstance(value, str):
        raise BadOption(f"timezone is a name such as Asia/Seoul, not {str(value)[:50]!r}.")
    zone(value)
    return value


def _payload(value: Any) -> msgspec.Raw:
    if not isinstance(value, dict):
        raise BadOption("payload is an object with the handler's parameters.")
    return msgspec.Raw(to_json(value, "payload"))


def _enabled(value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadOption(f"enabled is true or false, not {str(value)[:50]!r}.")
    return value


def _one_of(what: str, kind: type[E_]) -> Callable[[Any], E_]:
    known = [str(each) for each in kind]

    def chosen(value: Any) -> E_:
        if value not in known:
            shown = str(value)[:50]
            raise BadOption(f"{what} is {' or '.join(known)}, not {shown!r}.{did_you_mean(shown, known)}")
        return kind(value)

    return chosen


def _jitter(value: Any) -> float:
    if options.seconds("jitter_seconds", value) > MAX_JITTER_SECONDS:
        raise BadOption(f"jitter_seconds is at most {MAX_JITTER_SECONDS}, not {value}.")
    return options.seconds("jitter_seconds", value)


def _moment(what: str) -> Callable[[Any], Instant | None]:
    def moment(value: Any) -> Instant | None:
        if isinstance(value, str):
            try:
                value = instant(value)
            except ValueError as error:
                raise BadOption(f"{what}: {error}") from None
        elif isinstance(value, datetime):
            if value.tzinfo is None:
                raise BadOption(f"{what} must be a datetime with a time zone, not {value!r}.")
            value = round(value.timestamp() * 1000)
        return None if value is None else options.whole(what, value, 0, FOREVER)

    return moment


_WORDS: dict[str, Callable[[Any], Any]] = {
    "name": _name,
    "expression": _expression,
    "timezone": _timezone,
    "kind": lambda value: options.name("kind", value),
    "payload": _payload,
    "queue": lambda value: options.name("queue", value),
    "group": lambda value: None if value is None else options.name("group", value),
    "priority": lambda value: options.whole("priority", value, -options.MAX_PRIORITY, options.MAX_PRIORITY),
    "max_retry": lambda value: options.whole("max_retry", value, 0, options.MAX_ATTEMPTS - 1),
    "timeout_seconds": lambda value: None if value is None else options.positive("timeout_seconds", value),
    "enabled": _enabled,
    "overlap": _one_of("overlap", Overlap),
    "missed": _one_of("missed", Missed),
    "missed_limit": lambda value: options.whole("missed_limit", value, 1, MAX_MISSED),
    "jitter_seconds": _jitter,
    "start_at": _moment("start_at"),
    "end_at": _moment("end_at"),
}
