"""Instants: whole milliseconds since 1970 UTC, by the store's clock. Durations are in seconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

Instant: TypeAlias = int

# The last millisecond of the year 9999: "never", and still exact in a double.
FOREVER: Instant = 253_402_300_799_999
FIRST: Instant = -62_135_596_800_000  # 1 January of the year 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def after(now: Instant, seconds: float) -> Instant:
    """The instant that many seconds later, at most FOREVER.

    >>> after(1_000, 2.5)
    3500
    >>> after(1_000, 1e30) == FOREVER
    True
    """
    return min(FOREVER, now + round(min(seconds, 1e12) * 1000))


def as_datetime(instant: Instant) -> datetime:
    """The instant in UTC; one that datetime cannot hold is cut, so that any stored value can be shown.

    >>> as_datetime(1_500)
    datetime.datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=datetime.timezone.utc)
    """
    return EPOCH + timedelta(milliseconds=max(FIRST, min(FOREVER, instant)))


def as_instant(moment: datetime) -> Instant:
    """The instant of an aware datetime, rounded down.

    >>> as_instant(as_datetime(1_501))
    1501
    """
    return (moment - EPOCH) // timedelta(milliseconds=1)


def rfc3339(instant: Instant) -> str:
    """UTC text for people and JSON.

    >>> rfc3339(0)
    '1970-01-01T00:00:00.000Z'
    >>> rfc3339(-(10**18)), rfc3339(10**18)
    ('0001-01-01T00:00:00.000Z', '9999-12-31T23:59:59.999Z')
    """
    return as_datetime(instant).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def instant(text: str) -> Instant:
    """Parse RFC 3339 text, rounded down; a date means its start, and a time without a zone is UTC.

    >>> instant("1970-01-01T02:00:01.0019+01:00"), instant("1970-01-02")
    (3601001, 86400000)
    >>> instant("yesterday")
    Traceback (most recent call last):
    ValueError: Cannot parse the time "yesterday". Use a format like 2026-11-16T09:30:00Z
    """
    try:
        found = datetime.fromisoformat(text)
        return ((found if found.tzinfo else found.replace(tzinfo=UTC)) - EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        raise ValueError(f'Cannot parse the time "{text}". Use a format like 2026-11-16T09:30:00Z') from None
