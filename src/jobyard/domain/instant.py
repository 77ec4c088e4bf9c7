"""Instants are whole milliseconds since 1970 UTC, by the store's clock; durations are seconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

Instant: TypeAlias = int

# The last millisecond of the year 9999: "never by itself", and still exact in a double.
FOREVER: Instant = 253_402_300_799_999
FIRST: Instant = -62_135_596_800_000  # the first of the year 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def after(now: Instant, seconds: float) -> Instant:
    """The instant so many seconds later, never past FOREVER.

    >>> after(1_000, 2.5)
    3500
    >>> after(1_000, 1e30) == FOREVER
    True
    """
    return min(FOREVER, now + round(min(seconds, 1e12) * 1000))


def rfc3339(instant: Instant) -> str:
    """UTC text for people and JSON.

    >>> rfc3339(0)
    '1970-01-01T00:00:00.000Z'
    >>> rfc3339(-(10**18)), rfc3339(10**18)
    ('0001-01-01T00:00:00.000Z', '9999-12-31T23:59:59.999Z')
    """
    instant = max(FIRST, min(FOREVER, instant))  # whatever a store holds can be shown
    return (EPOCH + timedelta(milliseconds=instant)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def instant(text: str) -> Instant:
    """What RFC 3339 text means, rounded down; a day is its beginning, and a time without a zone is UTC.

    >>> instant("1970-01-01T02:00:01.0019+01:00"), instant("1970-01-02")
    (3601001, 86400000)
    >>> instant("yesterday")
    Traceback (most recent call last):
    ValueError: "yesterday" is no time; write it like 2026-11-16T09:30:00Z
    """
    try:
        found = datetime.fromisoformat(text)
        return ((found if found.tzinfo else found.replace(tzinfo=UTC)) - EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        raise ValueError(f'"{text}" is no time; write it like 2026-11-16T09:30:00Z') from None
