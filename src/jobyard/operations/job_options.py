"""What a caller may ask for a job, checked before anything is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import msgspec

from jobyard.domain.instant import FOREVER, Instant
from jobyard.domain.job import NewJob, QueueSettings, Unique, UniqueScope
from jobyard.domain.retry import DEFAULT_BACKOFF, Backoff, Delays, as_backoff
from jobyard.errors import BadOption, did_you_mean

BackoffLike: TypeAlias = Backoff | float | Sequence[float]

MAX_NAME = 200
MAX_PRIORITY = 1_000_000
MAX_ATTEMPTS = 10_000
MAX_LIMIT = 1_000_000_000
MAX_SECONDS = 10 * 366 * 86_400
MAX_TAGS = 50
MAX_REASON = 2000
# What nobody sees as what it is: control characters, and those that break a line or turn the direction of its text.
HIDDEN = r"\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_UNPRINTABLE = re.compile(rf"[{HIDDEN}\ud800-\udfff]")  # a lone surrogate is not text: no store can hold it


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one enqueue; a definition's options are the defaults of its calls."""

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
    private: Any = None
    transaction: Any = None

    def new_job(self, job_id: str, kind: str, payload: bytes, private: bytes | None) -> NewJob:
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


# How each word that people write becomes a field; a word that is not here is refused.
_WORDS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "queue": lambda value: {"queue": name("queue", value)},
    "group": lambda value: {"group": None if value is None else name("group", value)},
    "priority": lambda value: {"priority": whole("priority", value, -MAX_PRIORITY, MAX_PRIORITY)},
    "delay": lambda value: {"delay_seconds": seconds("delay", value), "run_at": None},
    "run_at": lambda value: {"run_at": instant(value), "delay_seconds": 0.0},
    "max_attempts": lambda value: {"max_attempts": whole("max_attempts", value, 1, MAX_ATTEMPTS)},
    "timeout": lambda value: {"timeout_seconds": None if value is None else positive("timeout", value)},
    "backoff": lambda value: {"backoff": checked_backoff(value)},
    "unique": lambda value: {"unique": checked_unique(value)},
    "tags": lambda value: {"tags": checked_tags(value)},
    "private": lambda value: {"private": value},
    "transaction": lambda value: {"transaction": value},
}


def with_options(base: Options, given: dict[str, Any]) -> Options:
    """
    >>> with_options(Options(), {"delay": -1})
    Traceback (most recent call last):
      ...
    jobyard.errors.BadOption: delay must be from 0 to 316224000 seconds, not -1.
    >>> with_options(Options(), {"prioritty": 1})
    Traceback (most recent call last):
      ...
    jobyard.errors.BadOption: There is no option prioritty. Did you mean "priority"?
    """
    if given.get("delay") is not None and given.get("run_at") is not None:
        raise BadOption("Give delay or run_at, not both.")
    changes: dict[str, Any] = {}
    for word, value in given.items():
        if word not in _WORDS:
            raise BadOption(f"There is no option {word}.{did_you_mean(word, _WORDS)}")
        changes.update(_WORDS[word](value))
    return msgspec.structs.replace(base, **changes)


def name(what: str, value: Any) -> str:
    if not isinstance(value, str) or not value or len(value) > MAX_NAME or _UNPRINTABLE.search(value):
        raise BadOption(f"A {what} is a name of 1 to {MAX_NAME} printable characters, not {str(value)[:50]!a}.")
    return value


def whole(what: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadOption(f"{what} must be a whole number from {least} to {most}, not {_short(value)}.")
    return value


def seconds(what: str, value: Any) -> float:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= MAX_SECONDS:
        raise BadOption(f"{what} must be from 0 to {MAX_SECONDS} seconds, not {_short(value)}.")
    return value  # type: ignore[no-any-return]  # a number, checked above


def _short(value: Any) -> str:
    """As it would be written, cut where it no longer helps; a huge int cannot even be written in decimal."""
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return f"{'-' if value < 0 else ''}a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def positive(what: str, value: Any) -> float:
    if seconds(what, value) == 0:
        raise BadOption(f"{what} must be more than 0 seconds.")
    return seconds(what, value)


def instant(value: Any) -> Instant | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise BadOption(f"run_at must be a datetime with a time zone, not {value!r}.")
    return max(0, min(FOREVER, round(value.timestamp() * 1000)))  # what was due before 1970 is due


def checked_backoff(value: Any) -> Backoff:
    try:
        backoff = as_backoff(value)
    except (TypeError, ValueError) as error:
        raise BadOption(f"backoff is seconds, a list of seconds or a back-off, not {value!r}.") from error
    if isinstance(value, str) or backoff == Delays(()):
        raise BadOption(f"backoff is seconds, a list of seconds or a back-off, not {value!r}.")
    parts = backoff.seconds if isinstance(backoff, Delays) else msgspec.structs.astuple(backoff)
    for part in parts:
        seconds("each part of backoff", part)
    return backoff


def checked_unique(value: Any) -> Unique | None:
    if value is None:
        return None
    unique = Unique(name("unique key", value)) if isinstance(value, str) else value
    if not isinstance(unique, Unique) or not isinstance(unique.scope, UniqueScope):
        raise BadOption(f"unique is a key or a Unique with a UniqueScope, not {value!r}.")
    if unique.scope is UniqueScope.PERIOD:
        positive("the period of a unique key", unique.period_seconds)
    name("unique key", unique.key)
    return unique


def checked_tags(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        raise BadOption(f"tags is a list of names: write [{value!r}].")
    tags = tuple(dict.fromkeys(name("tag", tag) for tag in value))
    if len(tags) > MAX_TAGS:
        raise BadOption(f"A job has at most {MAX_TAGS} tags, not {len(tags)}.")
    return tags


def queue_settings(given: dict[str, Any]) -> QueueSettings:
    """Settings of a queue from the words of `yard.queue` and the configuration file."""
    known = QueueSettings.__struct_fields__
    checked: dict[str, Any] = {}
    for word, value in given.items():
        if word not in known:
            raise BadOption(f"A queue has no setting {word}.{did_you_mean(word, known)}")
        if word == "keep_seconds":
            checked[word] = seconds(word, value)
        elif value is not None or word.startswith("keep"):
            checked[word] = whole(word, value, 0, MAX_LIMIT)
    return QueueSettings(**checked)


def reason(value: Any) -> str:
    """Why somebody changed a job, in words that every store can hold.

    >>> reason(None), reason("caf\\udce9"), len(reason("x" * 5000))
    ('', 'caf?', 2000)
    """
    return "" if value is None else str(value)[:MAX_REASON].encode("utf-8", "replace").decode()


def limit(value: Any) -> int:
    """A group's own limit: 0 blocks it, 1 makes it serial."""
    return whole("a limit", value, 0, MAX_LIMIT)
