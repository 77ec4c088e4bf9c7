"""How old a grant can be, by the answers before it."""

from __future__ import annotations

import time

import pytest

from jobyard.testing.clock import ManualClock
from jobyard.worker import grant_age
from jobyard.worker.grant_age import GrantAge

STORE_AHEAD = 1_000_000_000_000


@pytest.fixture
def elapsed() -> ManualClock:
    return ManualClock(start=0)


@pytest.fixture
def age(elapsed: ManualClock) -> GrantAge:
    return GrantAge(lambda: elapsed.now() / 1000)


def answer(
    age: GrantAge, elapsed: ManualClock, waited: float, late: float, ahead: int = STORE_AHEAD, sent: float = 0.01
) -> float:
    """The age of a grant that waited in the store, and whose answer came late."""
    asked_at = age.now()
    elapsed.advance(sent + waited)
    granted_at = elapsed.now() + ahead
    elapsed.advance(late)
    return round(age.seconds(granted_at, asked_at), 3)


def test_a_grant_is_as_old_as_its_answer_was_late(age: GrantAge, elapsed: ManualClock) -> None:
    assert answer(age, elapsed, waited=1, late=0.01) == 1.02, "nothing is known yet, but that it was asked for"
    assert answer(age, elapsed, waited=0, late=0.01) == 0.02
    assert answer(age, elapsed, waited=1, late=0.01) == 0.02
    assert [answer(age, elapsed, waited=1, late=3) for _ in range(2)] == [3.01] * 2


def test_late_answers_at_first_are_late(age: GrantAge, elapsed: ManualClock) -> None:
    assert [answer(age, elapsed, waited=0, late=3) for _ in range(2)] == [3.01] * 2


def test_the_stores_clock_is_set(age: GrantAge, elapsed: ManualClock) -> None:
    answer(age, elapsed, waited=0, late=0.01)
    for ahead in (STORE_AHEAD - 60_000, STORE_AHEAD + 60_000):
        assert answer(age, elapsed, waited=0.5, late=0.01, ahead=ahead) == 0.52
        assert answer(age, elapsed, waited=0, late=3, ahead=ahead) == 3.01


def test_the_stores_clock_runs_at_another_speed(age: GrantAge, elapsed: ManualClock) -> None:
    for drift in (20, -20):
        for number in range(100):
            known = answer(age, elapsed, waited=0, late=0.01, ahead=STORE_AHEAD + number * drift)
            assert 0 <= known <= 0.04
        assert 2.95 < answer(age, elapsed, waited=0, late=3, ahead=STORE_AHEAD + 100 * drift) < 3.05


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="Linux only")
def test_a_machine_that_was_suspended_counts_that_time(monkeypatch: pytest.MonkeyPatch) -> None:
    suspended = {time.CLOCK_BOOTTIME: 3600.0}
    real = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: real(clock) + suspended.get(clock, 0.0))
    assert grant_age.elapsed_seconds() > time.monotonic() + 3000
