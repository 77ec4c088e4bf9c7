"""What becomes of due instants: each is decided once, whatever the clock does, and as the policy says."""

from __future__ import annotations

import time
from itertools import pairwise, takewhile

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.domain.due import GRACE, MAX_COUNTED, TickPlan, due, instants, next_instant
from jobyard.domain.instant import Instant, instant
from jobyard.domain.schedule import Missed, Overlap, Schedule, Verdict

START = instant("2026-11-16T12:00:00Z")
SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000
FIRED, LATE, MISSED, SKIPPED = Verdict.FIRED, Verdict.LATE, Verdict.MISSED, Verdict.SKIPPED


def every(expression: str, **words: object) -> Schedule:
    fields = {"name": "s", "expression": expression, "kind": "k", "since": START, **words}
    return msgspec.convert(fields, Schedule)


def short(plans: list[TickPlan]) -> list[tuple[float, Verdict, int]]:
    """As (minutes after the start, verdict, count)."""
    return [((plan.at - START) / MINUTE, plan.verdict, plan.count) for plan in plans]


class Ledger:
    """The store's rule, in a few lines."""

    def __init__(self) -> None:
        self.until = START
        self.made: list[TickPlan] = []

    def decide(self, plan: TickPlan) -> None:
        if plan.at > self.until:
            self.until = plan.at
            self.made.append(plan)


def until(schedule: Schedule, last: Instant) -> list[Instant]:
    return list(takewhile(lambda at: at <= last, instants(schedule, START)))


expressions = st.sampled_from(["* * * * *", "*/10 * * * * *", "*/7 * * * *", "15 * * * *", "0,1 */2 * * *"])
policies = st.sampled_from([{"missed": missed, "missed_limit": 3} for missed in Missed])


@given(
    expression=expressions,
    policy=policies,
    looks=st.lists(st.tuples(st.integers(0, 2), st.integers(-HOUR // 2, HOUR)), max_size=20),
)
def test_each_instant_is_decided_once_whatever_the_clock_does(
    expression: str, policy: dict[str, object], looks: list[tuple[int, int]]
) -> None:
    """Three schedulers look at a clock that goes anywhere; what each knows may be old."""
    schedule = every(expression, **policy)
    ledger = Ledger()
    known = [START, START, START]
    latest = START
    for who, passed in looks:
        now = START + passed
        latest = max(latest, now)
        plans = due(schedule, known[who], now)
        if any(plan.count > 1 for plan in plans):  # as a scheduler does: it reads the state before it counts
            known[who] = ledger.until
            plans = due(schedule, known[who], now)
        for plan in plans:
            assert known[who] < plan.first <= plan.at <= now
            ledger.decide(plan)
        known[who] = max(known[who], min(ledger.until, now))
    assert all(earlier.at < later.first for earlier, later in pairwise(ledger.made))
    passed_by = until(schedule, ledger.until)
    assert sum(plan.count for plan in ledger.made) == len(passed_by)
    assert {plan.at for plan in ledger.made} <= set(passed_by)
    assert ledger.until <= latest


@given(expression=expressions, policy=policies, steps=st.lists(st.integers(0, GRACE), min_size=1, max_size=60))
def test_while_a_scheduler_runs_the_fired_set_is_the_expected_set(
    expression: str, policy: dict[str, object], steps: list[int]
) -> None:
    schedule = every(expression, **policy)
    ledger, now = Ledger(), START
    for step in steps:
        now += step
        for plan in due(schedule, ledger.until, now):
            ledger.decide(plan)
    assert [(plan.at, plan.verdict) for plan in ledger.made] == [(at, FIRED) for at in until(schedule, now)]


@pytest.mark.parametrize(
    ("policy", "away", "expected"),
    [
        ({"missed": "skip"}, 5 * MINUTE + 31_000, [(5, MISSED, 5)]),
        ({"missed": "skip"}, 5 * MINUTE + 30_000, [(4, MISSED, 4), (5, FIRED, 1)]),
        ({"missed": "once"}, 5 * MINUTE + 31_000, [(4, MISSED, 4), (5, LATE, 1)]),
        ({"missed": "once"}, 5 * MINUTE + 30_000, [(4, MISSED, 4), (5, FIRED, 1)]),
        ({"missed": "once"}, 1 * MINUTE + 31_000, [(1, LATE, 1)]),
        ({"missed": "all", "missed_limit": 2}, 5 * MINUTE + 31_000, [(3, MISSED, 3), (4, LATE, 1), (5, LATE, 1)]),
        ({"missed": "all", "missed_limit": 2}, 3 * MINUTE, [(1, LATE, 1), (2, LATE, 1), (3, FIRED, 1)]),
        ({"missed": "all", "missed_limit": 9}, 2 * MINUTE + 31_000, [(1, LATE, 1), (2, LATE, 1)]),
        ({"missed": "once"}, 59_999, []),
        ({"missed": "once"}, MINUTE, [(1, FIRED, 1)]),
    ],
)
def test_missed_instants_follow_the_policy(
    policy: dict[str, object], away: int, expected: list[tuple[float, Verdict, int]]
) -> None:
    assert short(due(every("* * * * *", **policy), START, START + away)) == expected


def test_a_held_tick_waits_until_a_newer_one_takes_its_place() -> None:
    schedule = every("* * * * *", overlap=Overlap.QUEUE)
    one = START + MINUTE
    assert short(due(schedule, START, one + 5000)) == [(1, FIRED, 1)]
    assert short(due(schedule, START, one + 5000, held=one)) == [(1, FIRED, 1)]
    assert short(due(schedule, START, one + 59_000, held=one)) == [(1, LATE, 1)]
    assert short(due(schedule, START, one + MINUTE, held=one)) == [(1, SKIPPED, 1), (2, FIRED, 1)]
    assert short(due(schedule, START, one + MINUTE, held=one + MINUTE)) == [(1, SKIPPED, 1), (2, FIRED, 1)]
    # No scheduler ran for minutes: those ticks were missed, and the newest takes their place.
    assert short(due(schedule, START, one + 3 * MINUTE + 31_000, held=one)) == [
        (1, SKIPPED, 1),
        (3, MISSED, 2),
        (4, LATE, 1),
    ]


def test_start_end_and_earlier_times_bound_it() -> None:
    schedule = every("* * * * *", start_at=START + 2 * MINUTE, end_at=START + 4 * MINUTE)
    assert short(due(schedule, 0, START + 29_000)) == []
    assert [at - START for at in instants(schedule, 0)] == [2 * MINUTE, 3 * MINUTE, 4 * MINUTE]
    assert next_instant(schedule, START + 4 * MINUTE) is None
    assert next_instant(every("* * * * *"), START - HOUR) == START + MINUTE


@pytest.mark.parametrize("expression", ["*/10 * * * * *", "* * * * *", "0 0 1 1 *", "* 0-2 1 */3 *"])
def test_a_long_absence_costs_little(expression: str) -> None:
    schedule = every(expression, missed="all", missed_limit=1000)
    now = START + 30 * 365 * 24 * HOUR
    began = time.process_time()
    plans = due(schedule, START, now)
    assert time.process_time() - began < 5, "counted one by one"
    late = [plan.at for plan in plans if plan.verdict.has_job]
    # The newest, with none left out between them.
    assert late == list(takewhile(lambda at: at <= now, instants(schedule, late[0] - 1)))
    if plans[0].verdict is MISSED:
        assert plans[0].first == next_instant(schedule, START)
        assert len([plan for plan in plans if plan.verdict is LATE]) == 1000
        assert plans[0].count >= MAX_COUNTED
        assert next_instant(schedule, plans[0].at) == late[0]


def test_jitter_is_the_same_for_all_and_spread() -> None:
    spread = every("* * * * *", jitter_seconds=10)
    found = {spread.jitter(START + number * MINUTE) for number in range(200)}
    assert len(found) > 100
    assert all(0 <= each <= 10_000 for each in found)
    job = spread.job("id", START)
    assert job.run_at == START + spread.jitter(START)
    assert every("* * * * *", jitter_seconds=10).job("id", START).run_at == job.run_at
    other = every("* * * * *", jitter_seconds=10, name="other")
    assert [other.jitter(START + number) for number in range(9)] != [
        spread.jitter(START + number) for number in range(9)
    ]


@pytest.mark.parametrize(("expression", "number"), [("* * * * *", 43_200), ("0 * * * *", 720)])
def test_what_is_evenly_spread_is_counted_exactly(expression: str, number: int) -> None:
    [missed] = due(every(expression, missed="skip"), START, START + 30 * 24 * HOUR + 31_000)
    assert (missed.verdict, missed.count) == (MISSED, number)
