"""Backoff: how long a failed job waits before its next attempt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec


class Fixed(msgspec.Struct, frozen=True, tag="fixed", tag_field="type"):
    """The same wait each time."""

    seconds: float


class Exponential(msgspec.Struct, frozen=True, tag="exponential", tag_field="type"):
    """Doubling waits from `base_seconds`, capped, spread by ±`jitter` so that failures do not return in step."""

    base_seconds: float = 2.0
    factor: float = 2.0
    max_seconds: float = 3600.0
    jitter: float = 0.1


class Delays(msgspec.Struct, frozen=True, tag="delays", tag_field="type"):
    """A list of waits, one per failure; the last one repeats."""

    seconds: tuple[float, ...]


Backoff: TypeAlias = Fixed | Exponential | Delays

DEFAULT_BACKOFF = Exponential()

# Between two tries to reach a store that fails.
OUTAGE_FIRST_SECONDS = 0.05
OUTAGE_MAX_SECONDS = 5.0


def retry_delay_seconds(backoff: Backoff, failures: int, roll: float) -> float:
    """The wait after that many failures (1 or more); `roll` in [0, 1) decides the jitter.

    >>> retry_delay_seconds(Fixed(5), 3, 0.0)
    5
    >>> [retry_delay_seconds(Exponential(jitter=0), n, 0.5) for n in (1, 2, 3)]
    [2.0, 4.0, 8.0]
    >>> retry_delay_seconds(Delays((1, 10)), 7, 0.0)
    10
    """
    match backoff:
        case Fixed(seconds):
            return seconds
        case Delays(seconds=delays):
            return delays[min(failures, len(delays)) - 1] if delays else 0.0
        case Exponential():
            try:
                grown = min(backoff.base_seconds * backoff.factor ** (failures - 1), backoff.max_seconds)
            except OverflowError:
                grown = backoff.max_seconds
            return grown * (1 + backoff.jitter * (2 * roll - 1))


def outage_delay(outage_seconds: float, roll: float) -> float:
    """The delay before the next call to a store that has failed for that long; `roll` in [0, 1) decides the jitter.

    >>> outage_delay(0, 0.0), outage_delay(4, 0.5), outage_delay(60, 0.0)
    (0.025, 1.5, 2.5)
    """
    return min(OUTAGE_MAX_SECONDS, max(OUTAGE_FIRST_SECONDS, outage_seconds / 2)) * (0.5 + roll / 2)


def as_backoff(value: Backoff | float | Sequence[float]) -> Backoff:
    """A backoff from a number, a list of numbers, or one of the classes.

    >>> as_backoff(3)
    Fixed(seconds=3.0)
    >>> as_backoff([1, 5])
    Delays(seconds=(1.0, 5.0))
    """
    if isinstance(value, Fixed | Exponential | Delays):
        return value
    if isinstance(value, int | float):
        return Fixed(float(value))
    return Delays(tuple(float(seconds) for seconds in value))
