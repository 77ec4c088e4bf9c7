"""Back-off: never negative, never beyond its cap and spread."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobyard.domain.retry import Delays, Exponential, Fixed, as_backoff, wait_seconds

waits = st.floats(0, 1e6)
failures = st.integers(1, 10**9)
rolls = st.floats(0, 1, exclude_max=True)


@given(waits, failures, rolls)
def test_fixed_is_fixed(seconds: float, failed: int, roll: float) -> None:
    assert wait_seconds(Fixed(seconds), failed, roll) == seconds


@given(st.lists(waits, min_size=1, max_size=5), failures, rolls)
def test_the_last_delay_repeats(delays: list[float], failed: int, roll: float) -> None:
    assert wait_seconds(Delays(tuple(delays)), failed, roll) == (delays[failed - 1 :] or delays[-1:])[0]


def test_no_delays_are_no_wait() -> None:
    assert wait_seconds(Delays(()), 3, 0.5) == 0.0


@given(st.floats(0.001, 100), st.floats(1, 10), st.floats(0, 1e6), st.floats(0, 1), failures, rolls)
def test_exponential_stays_within_cap_and_spread(
    base: float, factor: float, most: float, jitter: float, failed: int, roll: float
) -> None:
    wait = wait_seconds(Exponential(base, factor, most, jitter), failed, roll)
    assert 0 <= wait <= most * (1 + jitter)


@given(st.floats(0.001, 100), st.floats(1, 10), st.integers(1, 100))
def test_exponential_never_shrinks(base: float, factor: float, failed: int) -> None:
    backoff = Exponential(base, factor, 3600, jitter=0)
    assert wait_seconds(backoff, failed, 0.5) <= wait_seconds(backoff, failed + 1, 0.5)


@given(st.one_of(st.builds(Fixed, waits), st.builds(Exponential), st.builds(Delays, st.tuples(waits, waits))))
def test_a_backoff_is_taken_as_it_is(backoff: Fixed | Exponential | Delays) -> None:
    assert as_backoff(backoff) is backoff
