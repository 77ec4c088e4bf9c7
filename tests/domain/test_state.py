"""The state machine: every outcome becomes a legal transition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.domain.job import Ending, State
from jobyard.domain.lease import MAX_DEATHS, Lease
from jobyard.domain.outcome import Cancel, Done, Failed, Handoff, Outcome, Park, Release, Snooze, TimedOut
from jobyard.domain.retry import Delays, Fixed
from jobyard.domain.state import (
    LEGAL,
    CancelRequest,
    Transition,
    apply_cancel_request,
    judge,
    judge_expired,
    require_legal,
)
from jobyard.errors import NotPossible

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=10)
waits = st.floats(-10, 1e6)
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Done, st.sampled_from([b"null", b"1"])),
    st.builds(Failed, message=texts, retry=st.booleans(), retry_after_seconds=st.one_of(st.none(), waits)),
    st.builds(TimedOut, texts),
    st.builds(Snooze, waits),
    st.builds(Cancel, texts),
    st.builds(Handoff, texts),
    st.builds(Park, texts, st.one_of(st.none(), st.floats(0, 1e6))),
    st.just(Release()),
)


@st.composite
def leases(draw: st.DrawFn) -> Lease:
    max_attempts = draw(st.integers(1, 5))
    return Lease(
        job_id="job",
        sequence=1,
        token="token",
        kind="work",
        queue="default",
        group=None,
        priority=0,
        attempt=draw(st.integers(1, max_attempts)),
        max_attempts=max_attempts,
        deaths=0,
        payload=b"{}",
        private_payload=None,
        timeout_seconds=None,
        backoff=Fixed(5.0),
    )


@given(leases(), outcomes)
def test_every_outcome_is_a_legal_transition(lease: Lease, outcome: Outcome) -> None:
    transition = judge(lease, outcome)
    assert transition.to in LEGAL[State.RUNNING]
    assert transition.delay_seconds >= 0
    assert transition.counted == (not isinstance(outcome, Snooze | Park | Release))
    assert not transition.died


@given(leases(), outcomes)
def test_the_state_follows_from_the_outcome(lease: Lease, outcome: Outcome) -> None:
    transition = judge(lease, outcome, worker="w")
    is_last = lease.attempt >= lease.max_attempts
    expected = {
        Done: State.COMPLETED,
        Cancel: State.CANCELLED,
        Handoff: State.RUNNING,
        Snooze: State.PENDING,
        Park: State.PENDING,
        Release: State.PENDING,
        TimedOut: State.TIMEOUT if is_last else State.PENDING,
        Failed: State.FAILED if is_last or not getattr(outcome, "retry", True) else State.PENDING,
    }
    assert transition.to is expected[type(outcome)]
    if isinstance(outcome, Failed | TimedOut | Cancel):
        assert transition.error is not None
        assert (transition.error.attempt, transition.error.worker) == (lease.attempt, "w")
    else:
        assert transition.error is None
    if isinstance(outcome, Park):
        assert (transition.signal, transition.park_seconds) == (outcome.signal, outcome.seconds)


@given(leases(), outcomes, texts)
def test_a_job_with_a_cancel_request_never_waits_again(lease: Lease, outcome: Outcome, reason: str) -> None:
    before = judge(lease, outcome)
    cancelled = apply_cancel_request(before, CancelRequest(reason))
    assert cancelled.to is not State.PENDING
    assert apply_cancel_request(before, CancelRequest(None)) == before
    if before.to is State.PENDING:
        assert (cancelled.to, cancelled.reason, cancelled.error) == (State.CANCELLED, reason, before.error)
        assert (cancelled.signal, cancelled.park_seconds, cancelled.delay_seconds) == (None, None, 0.0)
        assert cancelled.counted == before.counted
    else:
        assert cancelled == before


@given(st.integers(1, 5), st.integers(0, 5), st.one_of(st.none(), texts), st.booleans())
def test_a_lost_lease_is_a_death_that_is_not_counted(
    attempt: int, deaths: int, reason: str | None, ends_itself: bool
) -> None:
    transition = judge_expired(
        attempt=attempt, deaths=deaths, worker="w", cancel_requested=reason, ends_itself=ends_itself
    )
    assert transition.died
    assert not transition.counted
    assert transition.error is not None
    if reason is not None:
        assert (transition.to, transition.reason) == (State.CANCELLED, reason)
    elif deaths + 1 >= MAX_DEATHS + ends_itself:
        assert (transition.to, transition.error.ending) == (State.FAILED, Ending.QUARANTINED)
    else:
        assert (transition.to, transition.error.ending) == (State.PENDING, Ending.LOST)


@pytest.mark.parametrize("old", State)
@pytest.mark.parametrize("new", State)
def test_only_legal_changes_of_state_can_be_made(old: State, new: State) -> None:
    if new in LEGAL[old]:
        require_legal(old, new)
    else:
        with pytest.raises(NotPossible):
            require_legal(old, new)


def test_a_running_job_may_become_anything_that_a_transition_can_say() -> None:
    assert {Transition(to=state).to for state in State} == LEGAL[State.RUNNING]


# Written out, so that a change of the rules has to be made twice: once here.
MAY_BECOME = """
           PENDING RUNNING COMPLETED FAILED TIMEOUT CANCELLED
PENDING    no      yes     no        no     no      yes
RUNNING    yes     yes     yes       yes    yes     yes
COMPLETED  no      no      no        no     no      no
FAILED     yes     no      no        no     no      no
TIMEOUT    yes     no      no        no     no      no
CANCELLED  yes     no      no        no     no      no
"""


def test_the_table_of_transitions() -> None:
    header, *rows = [line.split() for line in MAY_BECOME.strip().splitlines()]
    assert header == [row[0] for row in rows] == [state.value for state in State]
    for old, *answers in rows:
        for new, answer in zip(header, answers, strict=True):
            try:
                require_legal(State(old), State(new))
                is_legal = "yes"
            except NotPossible:
                is_legal = "no"
            assert is_legal == answer, f"{old} to {new}"


def lease_of(attempt: int, max_attempts: int) -> Lease:
    backoff = Delays((7.0, 70.0))
    return Lease(
        "job", 1, "token", "work", "default", None, 0, attempt, max_attempts, 0, b"{}", None, None, backoff
    )  # fmt: skip


@pytest.mark.parametrize(
    ("outcome", "attempt", "expected"),
    # Of three attempts. Expected: to, counted, delay, error's ending, reason
    [
        (Done(b"1"), 1, ("COMPLETED", True, 0.0, None, None)),
        (Done(), 3, ("COMPLETED", True, 0.0, None, None)),
        (Failed(message="no"), 1, ("PENDING", True, 7.0, "error", None)),
        (Failed(message="no"), 2, ("PENDING", True, 70.0, "error", None)),
        (Failed(message="no"), 3, ("FAILED", True, 0.0, "error", "no")),
        (Failed(message="no", retry=False), 1, ("FAILED", True, 0.0, "error", "no")),
        (Failed(message="no", retry_after_seconds=0.5), 2, ("PENDING", True, 0.5, "error", None)),
        (Failed(message="no", retry_after_seconds=0.5), 3, ("FAILED", True, 0.0, "error", "no")),
        (TimedOut("late"), 1, ("PENDING", True, 7.0, "timeout", None)),
        (TimedOut("late"), 3, ("TIMEOUT", True, 0.0, "timeout", "late")),
        (Snooze(9), 3, ("PENDING", False, 9.0, None, None)),
        (Snooze(-9), 1, ("PENDING", False, 0.0, None, None)),
        (Cancel("enough"), 1, ("CANCELLED", True, 0.0, "cancelled", "enough")),
        (Handoff("pod"), 1, ("RUNNING", True, 0.0, None, None)),
        (Park("go", 5.0), 3, ("PENDING", False, 0.0, None, None)),
        (Release(), 3, ("PENDING", False, 0.0, None, None)),
    ],
)
def test_the_table_of_outcomes(outcome: Outcome, attempt: int, expected: tuple[object, ...]) -> None:
    made = judge(lease_of(attempt, 3), outcome)
    ending = made.error and made.error.ending.value
    assert (made.to.value, made.counted, made.delay_seconds, ending, made.reason) == expected
    assert (made.died, made.external_id) == (False, "pod" if isinstance(outcome, Handoff) else None)
    assert (made.signal, made.park_seconds) == (("go", 5.0) if isinstance(outcome, Park) else (None, None))


@pytest.mark.parametrize(
    ("deaths", "cancel_requested", "expected"),
    # Deaths before this one. Expected: to, ending, reason
    [
        (0, None, ("PENDING", "lost", None)),
        (1, None, ("PENDING", "lost", None)),
        (2, None, ("FAILED", "quarantined", "quarantined: 3 workers died while running it")),
        (0, "enough", ("CANCELLED", "lost", "enough")),
        (2, "enough", ("CANCELLED", "lost", "enough")),
    ],
)
def test_the_table_of_expired_leases(deaths: int, cancel_requested: str | None, expected: tuple[object, ...]) -> None:
    made = judge_expired(attempt=2, deaths=deaths, worker="w", cancel_requested=cancel_requested)
    assert made.error is not None
    assert (made.to.value, made.error.ending.value, made.reason) == expected
    assert (made.counted, made.died, made.delay_seconds, made.error.attempt) == (False, True, 0.0, 2)
