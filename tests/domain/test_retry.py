"""Back-off: never negative, never beyond its cap and spread."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.domain.retry import (
    DEFAULT_BACKOFF,
    Backoff,
    Delays,
    Exponential,
    Fixed,
    as_backoff,
    outage_delay,
    retry_delay_seconds,
)

waits = st.floats(0, 1e6)
failures = st.integers(1, 10**9)
rolls = st.floats(0, 1, exclude_max=True)


@given(waits, failures, rolls)
def test_fixed_is_fixed(seconds: float, failed: int, roll: float) -> None:
    assert retry_delay_seconds(Fixed(seconds), failed, roll) == seconds


@given(st.lists(waits, min_size=1, max_size=5), failures, rolls)
def test_the_last_delay_repeats(delays: list[float], failed: int, roll: float) -> None:
    assert retry_delay_seconds(Delays(tuple(delays)), failed, roll) == (delays[failed - 1 :] or delays[-1:])[0]


def test_no_delays_are_no_wait() -> None:
    assert retry_delay_seconds(Delays(()), 3, 0.5) == 0.0


@given(st.floats(0.001, 100), st.floats(1, 10), st.floats(0, 1e6), st.floats(0, 1), failures, rolls)
def test_exponential_stays_within_cap_and_spread(
    base: float, factor: float, most: float, jitter: float, failed: int, roll: float
) -> None:
    wait = retry_delay_seconds(Exponential(base, factor, most, jitter), failed, roll)
    assert 0 <= wait <= most * (1 + jitter)


@given(st.floats(0.001, 100), st.floats(1, 10), st.integers(1, 100))
def test_exponential_never_shrinks(base: float, factor: float, failed: int) -> None:
    backoff = Exponential(base, factor, 3600, jitter=0)
    assert retry_delay_seconds(backoff, failed, 0.5) <= retry_delay_seconds(backoff, failed + 1, 0.5)


@given(st.one_of(st.builds(Fixed, waits), st.builds(Exponential), st.builds(Delays, st.tuples(waits, waits))))
def test_a_backoff_is_taken_as_it_is(backoff: Fixed | Exponential | Delays) -> None:
    assert as_backoff(backoff) is backoff


@pytest.mark.parametrize(
    ("backoff", "roll", "waits"),
    # The waits after the 1st, 2nd, 3rd, 4th, 5th, 12th and 10,000th failure.
    [
        (Fixed(5), 0.5, [5, 5, 5, 5, 5, 5, 5]),
        (Delays((1, 10, 60)), 0.5, [1, 10, 60, 60, 60, 60, 60]),
        (DEFAULT_BACKOFF, 0.5, [2, 4, 8, 16, 32, 3600, 3600]),
        (DEFAULT_BACKOFF, 0.0, [1.8, 3.6, 7.2, 14.4, 28.8, 3240, 3240]),
        (DEFAULT_BACKOFF, 0.75, [2.1, 4.2, 8.4, 16.8, 33.6, 3780, 3780]),
        (Exponential(1, 3, 50, 0), 0.9, [1, 3, 9, 27, 50, 50, 50]),
        (Exponential(10, 1, 100, 0.5), 0.0, [5, 5, 5, 5, 5, 5, 5]),
    ],
)
def test_the_table_of_waits(backoff: Backoff, roll: float, waits: list[float]) -> None:
    found = [retry_delay_seconds(backoff, failures, roll) for failures in (1, 2, 3, 4, 5, 12, 10_000)]
    assert found == pytest.approx(waits, rel=1e-12)


@pytest.mark.parametrize(
    ("outage_seconds", "at_least", "below"),
    [(0, 0.025, 0.05), (0.1, 0.025, 0.05), (1, 0.25, 0.5), (4, 1.0, 2.0), (10, 2.5, 5.0), (3600, 2.5, 5.0)],
)
def test_the_table_of_outages(outage_seconds: float, at_least: float, below: float) -> None:
    assert (outage_delay(outage_seconds, 0.0), outage_delay(outage_seconds, 1.0)) == (at_least, below)
