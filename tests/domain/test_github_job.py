"""Jobs of GitHub: whatever order, repetition and omission of events, the end is the same."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.domain.runners.github_job import LATE_MS, GitHubJob, GitHubJobState, JobEvent, advance

HELD_BACK, QUEUED = GitHubJobState.HELD_BACK, GitHubJobState.QUEUED
IN_PROGRESS, COMPLETED = GitHubJobState.IN_PROGRESS, GitHubJobState.COMPLETED


def event(state: GitHubJobState, at: int = 0, **fields: object) -> JobEvent:
    job = GitHubJob(job_id=7, run_id=1, state=state, queued_at=5, **fields)  # type: ignore[arg-type]
    return JobEvent(action=state.action, job=job, received_at=at)


def told(events: list[JobEvent]) -> GitHubJob:
    """The job after all events, each received at a time of its own."""
    known: GitHubJob | None = None
    for number, each in enumerate(events, 1):
        known = advance(known, JobEvent(action=each.action, job=each.job, received_at=number))
    assert known is not None
    return known


@st.composite
def life(draw: st.DrawFn) -> list[JobEvent]:
    """The events of one job in the order in which GitHub made them."""
    words = draw(st.lists(st.sampled_from([QUEUED, HELD_BACK]), min_size=1, max_size=5))
    events = [event(state, gate_updated_at=f"2026-11-02T10:00:{number:02d}Z") for number, state in enumerate(words)]
    reached = draw(st.sampled_from(["gate", "running", "cancelled", "ended"]))
    if reached in ("running", "ended"):
        events.append(event(IN_PROGRESS, runner_name="r", runner_id=3))
    if reached == "ended":
        events.append(event(COMPLETED, runner_name="r", runner_id=3, conclusion="success"))
    if reached == "cancelled":
        events.append(event(COMPLETED, conclusion="cancelled"))
    return events


@given(st.data())
def test_any_order_and_repetition_ends_in_the_same_state(data: st.DataObject) -> None:
    events = data.draw(life())
    again = data.draw(st.lists(st.sampled_from(events), max_size=6))
    shuffled = data.draw(st.permutations([*events, *again]))
    expected, found = told(events), told(shuffled)
    assert (found.state, found.runner_name, found.runner_id, found.conclusion) == (
        expected.state, expected.runner_name, expected.runner_id, expected.conclusion,
    )  # fmt: skip
    assert (found.queued_at, found.received_at) == (5, 1)


@given(st.data())
def test_states_only_move_forward(data: st.DataObject) -> None:
    events = data.draw(life())
    shuffled = data.draw(st.permutations(events))
    ranks = [told(shuffled[: number + 1]).state.rank for number in range(len(shuffled))]
    assert ranks == sorted(ranks)


@given(life(), st.data())
def test_an_event_that_was_applied_changes_nothing_more(events: list[JobEvent], data: st.DataObject) -> None:
    known = told(events)
    again = data.draw(st.sampled_from(events))
    assert advance(known, JobEvent(action=again.action, job=again.job, received_at=99)) == known


@given(life(), st.integers(1, 3), st.integers(1, 9))
def test_what_the_manager_added_is_kept(events: list[JobEvent], tickets: int, checked_at: int) -> None:
    known = GitHubJob(
        job_id=7, run_id=1, state=HELD_BACK, tickets=tickets, ticketed_at=2, checked_at=checked_at, profile="linux",
        received_at=1, queued_at=5,
    )  # fmt: skip
    for each in events:
        known = advance(known, each)
    assert (known.tickets, known.ticketed_at, known.checked_at, known.profile) == (tickets, 2, checked_at, "linux")
    assert (known.received_at, known.queued_at) == (1, 5)


def test_times_of_the_stages() -> None:
    known = told([event(QUEUED), event(IN_PROGRESS, runner_name="r"), event(COMPLETED)])
    assert (known.received_at, known.started_at, known.completed_at) == (1, 2, 3)
    assert known.runner_name == "r"


def test_times_are_those_of_github() -> None:
    known = told([event(QUEUED), event(IN_PROGRESS, runner_name="r", started_at=6)])
    assert known.started_at == 6
    ended = advance(known, event(COMPLETED, 9_000, runner_name="r", started_at=7, completed_at=8_000))
    assert (ended.started_at, ended.completed_at) == (7, 8_000)


@pytest.mark.parametrize("completed_at", [0, 5, 10**12], ids=["missing", "before its start", "in the future"])
def test_impossible_time_is_replaced_by_the_arrival(completed_at: int) -> None:
    known = told([event(QUEUED), event(IN_PROGRESS, runner_name="r", started_at=6)])
    ended = advance(known, event(COMPLETED, 9_000, runner_name="r", completed_at=completed_at))
    assert (ended.started_at, ended.completed_at) == (6, 9_000)


def test_late_event_is_in_doubt_until_the_api_answers() -> None:
    late = advance(None, event(QUEUED, 5 + LATE_MS))
    assert (late.in_doubt, advance(None, event(QUEUED, 4 + LATE_MS)).in_doubt) == (True, False)
    running = advance(late, event(IN_PROGRESS, 90_000, started_at=100))
    assert running.in_doubt
    answer = event(IN_PROGRESS, 91_000, started_at=100)
    assert not advance(running, msgspec.structs.replace(answer, is_answer=True)).in_doubt


def test_without_a_word_of_the_gate_states_move_forward_and_github_is_asked() -> None:
    assert told([event(HELD_BACK), event(QUEUED)]).state is QUEUED
    late = told([event(QUEUED), event(HELD_BACK)])
    assert (late.state, late.in_doubt) == (QUEUED, True)
    answer = event(HELD_BACK, 9)
    held = advance(late, msgspec.structs.replace(answer, is_answer=True))
    assert (held.state, held.in_doubt) == (HELD_BACK, False)


def test_late_waiting_of_the_same_time_as_the_release() -> None:
    gate = "2026-11-02T10:00:01Z"
    released = told([event(HELD_BACK, gate_updated_at=gate), event(QUEUED, gate_updated_at=gate)])
    assert released.state is QUEUED
    assert advance(released, event(HELD_BACK, gate_updated_at=gate)).state is QUEUED


def test_earlier_attempt_is_ignored() -> None:
    known = told([event(QUEUED, run_attempt=2)])
    assert advance(known, event(COMPLETED, run_attempt=1)) == known


def test_record_with_the_former_word_for_held_back_is_read() -> None:
    assert msgspec.json.decode(b'{"job_id":7,"run_id":1,"state":"waiting"}', type=GitHubJob).state is HELD_BACK
