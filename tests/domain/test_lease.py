"""Leases and instants: when something ends, exactly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobyard.domain.instant import FOREVER, after
from jobyard.domain.lease import RENEWALS_PER_LEASE, is_expired, renewal_interval

instants = st.integers(0, FOREVER)


@given(instants, st.floats(0.001, 1e6))
def test_a_lease_holds_until_its_end_and_not_a_millisecond_longer(now: int, seconds: float) -> None:
    end = after(now, seconds)
    assert not is_expired(end, end - 1)
    assert is_expired(end, end) == (end != FOREVER)


@given(instants)
def test_for_ever_never_ends(now: int) -> None:
    assert not is_expired(FOREVER, now)


@given(instants, st.floats(0, 1e30), st.floats(0, 1e30))
def test_later_is_later_and_never_past_for_ever(now: int, first: float, second: float) -> None:
    sooner, later = sorted((first, second))
    assert now <= after(now, sooner) <= after(now, later) <= FOREVER


@given(st.floats(0.1, 1e4))
def test_a_lease_may_miss_renewals(seconds: float) -> None:
    assert renewal_interval(seconds) * (RENEWALS_PER_LEASE - 1) < seconds
