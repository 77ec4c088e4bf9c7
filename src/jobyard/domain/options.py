"""Options that callers set: one row per option, and the checks that options share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from jobyard.domain.instant import FOREVER, Instant, instant
from jobyard.errors import BadOption, did_you_mean

MAX_NAME = 200
MAX_PRIORITY = 1_000_000
MAX_ATTEMPTS = 10_000
MAX_LIMIT = 1_000_000_000
MAX_SECONDS = 10 * 366 * 86_400
MAX_TAGS = 50
MAX_REASON = 2000
# Control characters, and characters that break a line or turn the direction of its text: invisible to a reader.
HIDDEN = r"\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_UNPRINTABLE = re.compile(rf"[{HIDDEN}\ud800-\udfff]")  # no store can hold a lone surrogate

# Blank, and the steps of a path, which a URL cannot hold.
UNNAMEABLE = ("", ".", "..")
# Takes the name of the option and a value; returns the value to store or raises BadOption.
Check = Callable[[str, Any], Any]
E_ = TypeVar("E_", bound=StrEnum)


class Option(NamedTuple):
    """One option of a job or a schedule, for every place that can set it."""

    name: str  # in Python and, with dashes, on the command line
    field: str  # in JSON, YAML and the stored record: with the unit
    check: Check
    summary: str
    type: type = str  # of the flag on the command line
    metavar: str | None = None
    in_json: bool = True
    in_cli: bool = True
    flag: str = ""  # where it is not the name with dashes

    @property
    def cli_flag(self) -> str:
        """The flag on the command line; of a list, in the singular, because it is repeatable."""
        flag = self.flag or "--" + self.name.replace("_", "-")
        return flag.removesuffix("s") if self.type is tuple else flag


def check_options(options: Mapping[str, Option], given: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Checked values by field. Raises BadOption for the first invalid option, with the other errors in `others`."""
    checked: dict[str, Any] = {}
    errors: list[BadOption] = []
    for word, value in given.items():
        option = options.get(word)
        if option is None:
            errors.append(_unknown_option(options, word, what))
            continue
        try:
            checked[option.field] = option.check(word, value)
        except BadOption as error:
            error.option = word
            errors.append(error)
    if errors:
        errors[0].others = tuple(errors[1:])
        raise errors[0]
    return checked


def _unknown_option(options: Mapping[str, Option], word: str, what: str) -> BadOption:
    # A name that is right in another place: `timezone` and `timeout_seconds` in Python, `tz` in JSON.
    other = (name for name, option in options.items() if word in {option.name, option.field})
    shown = str(word)[:50]
    return BadOption(f"Unknown {what} option {shown}.{did_you_mean(next(other, shown), options)}", option=word)


def check_name(what: str, value: Any) -> str:
    is_text = isinstance(value, str) and 0 < len(value) <= MAX_NAME and not _UNPRINTABLE.search(value)
    if not is_text or value.strip() in UNNAMEABLE:
        raise BadOption(
            f"{what} must be a name of 1 to {MAX_NAME} printable characters, not {str(value)[:50]!a}.", option=what
        )
    return str(value)


def check_integer(what: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadOption(f"{what} must be a whole number from {least} to {most}, not {shown(value)}.", option=what)
    return value


def check_seconds(what: str, value: Any) -> float:
    """
    >>> check_seconds("delay", timedelta(minutes=1))
    60.0
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise BadOption(f"{what} must be a number of seconds, not {shown(value)}.", option=what)
    if not 0 <= value <= MAX_SECONDS:
        raise BadOption(f"{what} must be from 0 to {MAX_SECONDS} seconds, not {shown(value)}.", option=what)
    return value


def check_positive_seconds(what: str, value: Any) -> float:
    if check_seconds(what, value) == 0:
        raise BadOption(f"{what} must be more than 0 seconds.", option=what)
    return check_seconds(what, value)


def check_boolean(what: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadOption(f"{what} must be true or false, not {shown(value)}.", option=what)
    return value


def check_time(what: str, value: Any) -> Instant:
    """A datetime with a time zone, RFC 3339 text, or an Instant; a time before 1970 becomes 1970."""
    if isinstance(value, str):
        try:
            value = instant(value)
        except ValueError as error:
            raise BadOption(f"Invalid {what}: {error}.", option=what) from None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise BadOption(f"{what} must be a datetime with a time zone, not {value!r}.", option=what)
        return max(0, min(FOREVER, round(value.timestamp() * 1000)))
    return check_integer(what, value, 0, FOREVER)


def check_limit(value: Any, what: str = "limit") -> int:
    """The own limit of a group: 0 blocks it, 1 makes it serial."""
    return check_integer(what, value, 0, MAX_LIMIT)


def integer(least: int, most: int) -> Check:
    return lambda what, value: check_integer(what, value, least, most)


def choice(known: type[E_]) -> Check:
    words = [str(each) for each in known]

    def check(what: str, value: Any) -> E_:
        if value not in words:
            hint = did_you_mean(str(value)[:50], words)
            raise BadOption(f"{what} must be {' or '.join(words)}, not {shown(value)}.{hint}", option=what)
        return known(value)

    return check


def optional(check: Check) -> Check:
    return lambda what, value: None if value is None else check(what, value)


def as_reason(value: Any) -> str:
    """Why a job was changed, as text that every store can hold.

    >>> as_reason(None), as_reason("caf\\udce9"), len(as_reason("x" * 5000))
    ('', 'caf?', 2000)
    """
    return "" if value is None else str(value)[:MAX_REASON].encode("utf-8", "replace").decode()


def shown(value: Any) -> str:
    """The value as Python writes it, shortened; an integer beyond 64 bits may be too long to write in decimal."""
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return f"{'-' if value < 0 else ''}a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
