"""The options of a job: one table for Python, HTTP, the command line, the client and the docs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypedDict

import msgspec

from jobyard.domain import options
from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob, QueueSettings, Unique, UniqueScope
from jobyard.domain.options import Option
from jobyard.domain.retry import DEFAULT_BACKOFF, Backoff, Delays, as_backoff
from jobyard.errors import BadOption, did_you_mean

Seconds: TypeAlias = float | timedelta
BackoffLike: TypeAlias = Backoff | float | Sequence[float]


class JobOptions(TypedDict, total=False):
    """Keyword arguments of `task.options`, `yard.enqueue` and the client. None means not given.

    Durations are seconds, or a timedelta.
    """

    queue: str | None
    group: str | None
    priority: int | None
    delay: Seconds | None
    run_at: datetime | None
    max_attempts: int | None
    timeout: Seconds | None
    backoff: BackoffLike | None
    unique: str | Unique | None
    tags: tuple[str, ...] | list[str] | None
    private: Any
    transaction: Any


class CheckedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one job after the checks, with units in the names. A handler's are the defaults of its jobs."""

    queue: str = "default"
    group: str | None = None
    priority: int = 0
    delay_seconds: float = 0.0
    run_at: Instant | None = None
    max_attempts: int = 3
    timeout_seconds: float | None = None
    backoff: Backoff = DEFAULT_BACKOFF
    unique: Unique | None = None
    tags: tuple[str, ...] = ()
    private_payload: Any = None
    transaction: Any = None

    def new_job(self, job_id: str, kind: str, payload: bytes, private: bytes | None = None) -> NewJob:
        return NewJob(
            id=job_id,
            kind=kind,
            queue=self.queue,
            group=self.group,
            priority=self.priority,
            payload=payload,
            private_payload=private,
            max_attempts=self.max_attempts,
            timeout_seconds=self.timeout_seconds,
            backoff=self.backoff,
            delay_seconds=self.delay_seconds,
            run_at=self.run_at,
            unique=self.unique,
            tags=self.tags,
        )


DEFAULTS = CheckedOptions()


def with_options(base: CheckedOptions, given: Mapping[str, Any]) -> CheckedOptions:
    """`base` with the given options, which are named as in JobOptions. Raises BadOption.

    >>> with_options(CheckedOptions(), {"delay": -1})
    Traceback (most recent call last):
      ...
    jobyard.errors.BadOption: delay must be from 0 to 316224000 seconds, not -1.
    >>> with_options(CheckedOptions(), {"prioritty": 1})
    Traceback (most recent call last):
      ...
    jobyard.errors.BadOption: Unknown job option prioritty. Did you mean "priority"?
    """
    changes = checked_options(given)
    if "delay_seconds" in changes:
        changes["run_at"] = None
    elif "run_at" in changes:
        changes["delay_seconds"] = 0.0
    return msgspec.structs.replace(base, **changes)


def checked_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The given options by field, without those that are None."""
    changes = options.check_options(
        JOB_OPTIONS, {word: value for word, value in given.items() if value is not None}, "job"
    )
    if "delay_seconds" in changes and "run_at" in changes:
        error = BadOption("Pass delay or run_at, not both.", option="delay")
        error.others = (BadOption(str(error), option="run_at"),)
        raise error
    return changes


def _run_at(what: str, value: Any) -> Instant:
    if not isinstance(value, datetime):
        raise BadOption(f"{what} must be a datetime with a time zone, not {options.shown(value)}.")
    return options.check_time(what, value)


def _backoff(what: str, value: Any) -> Backoff:
    message = f"{what} must be seconds, a list of seconds, Fixed, Exponential or Delays, not {options.shown(value)}."
    try:
        backoff = as_backoff(value)
    except (TypeError, ValueError) as error:
        raise BadOption(message) from error
    if isinstance(value, str) or backoff == Delays(()):
        raise BadOption(message)
    parts = backoff.seconds if isinstance(backoff, Delays) else msgspec.structs.astuple(backoff)
    for part in parts:
        options.check_seconds(f"each part of {what}", part)
    return backoff


def _unique(what: str, value: Any) -> Unique:
    unique = Unique(options.check_name(what, value)) if isinstance(value, str) else value
    if not isinstance(unique, Unique) or not isinstance(unique.scope, UniqueScope):
        raise BadOption(f"{what} must be a key or a Unique with a UniqueScope, not {options.shown(value)}.")
    if unique.scope is UniqueScope.PERIOD:
        options.check_positive_seconds(f"{what}.period_seconds", unique.period_seconds)
    options.check_name(f"{what}.key", unique.key)
    return unique


def _tags(what: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        raise BadOption(f"{what} must be a list of names: write [{value!r}].")
    tags = tuple(dict.fromkeys(options.check_name("tag", tag) for tag in value))
    if len(tags) > options.MAX_TAGS:
        raise BadOption(f"A job can have at most {options.MAX_TAGS} tags, not {len(tags)}.")
    return tags


def _any(_: str, value: Any) -> Any:
    return value


JOB_OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option("queue", "queue", options.check_name, "The queue, if not the handler's.", metavar="NAME"),
        Option("group", "group", options.check_name, "The group whose limit the job shares.", metavar="NAME"),
        Option(
            "priority",
            "priority",
            options.integer(-options.MAX_PRIORITY, options.MAX_PRIORITY),
            "Jobs with a higher priority start first within their group.",
            type=int,
        ),
        Option(
            "delay",
            "delay_seconds",
            options.check_seconds,
            "The job starts at the earliest this many seconds from now.",
            type=float,
            metavar="SECONDS",
        ),
        Option(
            "run_at",
            "run_at",
            _run_at,
            "The job starts at this time at the earliest.",
            type=datetime,
            metavar="TIME",
            flag="--at",
        ),
        Option(
            "unique", "unique", _unique, "A key that at most one unfinished job of the queue can hold.", metavar="KEY"
        ),
        Option("tags", "tags", _tags, "A tag to find the job by; repeatable.", type=tuple, metavar="TAG"),
        Option(
            "max_attempts",
            "max_attempts",
            options.integer(1, options.MAX_ATTEMPTS),
            "How many times the job is attempted in all: 1 means no retry.",
            type=int,
        ),
        Option(
            "timeout",
            "timeout_seconds",
            options.check_positive_seconds,
            "How long one attempt may take.",
            type=float,
            metavar="SECONDS",
        ),
        Option("backoff", "backoff", _backoff, "How long the job waits after each failed attempt.", in_cli=False),
        Option(
            "private",
            "private_payload",
            _any,
            "JSON for the handler only: never shown, erased when the job completes.",
            in_cli=False,
        ),
        Option(
            "transaction",
            "transaction",
            _any,
            "The caller's database transaction, in which the job is inserted.",
            in_json=False,
            in_cli=False,
        ),
    )
}


def queue_settings(given: Mapping[str, Any]) -> QueueSettings:
    """Settings of a queue, named as in the configuration file."""
    known = QueueSettings.__struct_fields__
    checked: dict[str, Any] = {}
    for word, value in given.items():
        if word not in known:
            raise BadOption(f"Unknown queue setting {word}.{did_you_mean(word, known)}", option=word)
        if word in ("keep_completed_seconds", "keep_failed_seconds"):
            checked[word] = options.check_seconds(word, value)
        elif value is not None or word.startswith("keep"):
            checked[word] = options.check_limit(value, word)
    return QueueSettings(**checked)


def seconds_of(timeout: Seconds | None) -> float | None:
    """
    >>> seconds_of(timedelta(minutes=1)), seconds_of(2.5), seconds_of(None)
    (60.0, 2.5, None)
    """
    return timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
