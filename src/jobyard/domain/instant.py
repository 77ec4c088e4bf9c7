"""Instants are whole milliseconds since 1970 UTC, by the store's clock; durations are seconds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypeAlias

Instant: TypeAlias = int

# The last millisecond of the year 9999: "never by itself", and still exact in a double.
FOREVER: Instant = 253_402_300_799_999


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
    """
    return datetime.fromtimestamp(instant / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
