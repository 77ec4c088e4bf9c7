"""Times on the command line: absolute ones, and the distance from now."""

from __future__ import annotations

import re
import time
from datetime import datetime

import click

from jobyard.cli.render.output import echo
from jobyard.domain.instant import FOREVER, Instant, instant, rfc3339

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
RELATIVE = re.compile(
    r"(?P<in>in\s+|\+)?(?P<number>\d{1,9}(\.\d{1,3})?)\s*"
    r"(?P<unit>s|m|h|d|sec|min|seconds?|minutes?|hours?|days?)(?P<ago>\s+ago)?",
    re.IGNORECASE,
)
FORMS = '2026-11-16T09:30:00Z, "in 10 minutes", +10m or "2 hours ago"'


def time_of(text: str, now: Instant) -> Instant:
    """Parse an absolute time, or a distance from now in whole or broken seconds, minutes, hours or days.

    >>> time_of("+10m", 0), time_of("in 1.5 hours", 0), time_of("2 days ago", 172_800_000)
    (600000, 5400000, 0)
    >>> time_of("tomorrow", 0)
    Traceback (most recent call last):
    ValueError: Cannot parse the time "tomorrow". Use a form like 2026-11-16T09:30:00Z, "in 10 minutes", ...
    """
    found = RELATIVE.fullmatch(text.strip())
    if found is not None and bool(found["in"]) != bool(found["ago"]):
        distance = round(float(found["number"]) * SECONDS[found["unit"][0].lower()] * 1000)
        return min(FOREVER, now + distance) if found["in"] else now - distance
    try:
        return instant(text)
    except ValueError:
        raise ValueError(f'Cannot parse the time "{text}". Use a form like {FORMS}') from None


def time_value(context: click.Context, parameter: click.Parameter, value: str | None) -> Instant | None:
    """The callback of an option. A time without a zone is UTC, and a note says so."""
    if value is None:
        return None
    try:
        found = time_of(value, round(time.time() * 1000))
    except ValueError as error:
        raise click.BadParameter(f"{error}.", context, parameter) from None
    if has_no_zone(value):
        echo(f"{parameter.opts[0]} {value} has no time zone: it is read as UTC, {rfc3339(found)}.", err=True)
    return found


def has_no_zone(text: str) -> bool:
    """Whether it is a time of day without a zone; a date alone needs none.

    >>> has_no_zone("2026-11-16T09:30"), has_no_zone("2026-11-16T09:30Z"), has_no_zone("2026-11-16")
    (True, False, False)
    """
    try:
        return ":" in text and datetime.fromisoformat(text).tzinfo is None
    except ValueError:
        return False
