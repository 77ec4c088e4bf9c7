"""Histories that keep every promise, and such as a kill leaves behind: no alarm."""

from __future__ import annotations

import time

from tests.testing.test_history_builder import Story

from jobyard.domain.job import Ending, State
from jobyard.ports.admin_store import Action


def test_groups_take_turns_under_limits() -> None:
    story = Story()
    story.configure(max_running=3, max_per_group=2)
    story.insert("a1", "a2", "a3", group="a")
    story.insert("b1", "b2", group="b")
    story.claim("a1", "b1", "a2")
    story.exchange("b2", settled=[story.sent("a1")])
    story.exchange("a3", settled=[story.sent("b1")])
    for job_id in ("a2", "b2", "a3"):
        story.settle(job_id)
    assert story.codes(story.final(**dict.fromkeys(story.jobs, State.COMPLETED))) == set()


def test_a_full_group_is_passed_as_often_as_it_takes() -> None:
    story = Story()
    story.limit("a", 1)
    story.insert("a1", "a2", group="a")
    story.insert("b1", "b2", "b3", group="b")
    story.claim("a1", "b1", "b2", "b3")
    story.exchange("a2", settled=[story.sent("a1")])
    assert story.codes() == set()


def test_priority_then_sequence_then_retry_keeps_its_place() -> None:
    story = Story()
    story.insert("low", "later")
    story.insert("high", priority=5)
    story.claim("high", "low")
    story.settle("low", State.PENDING)
    story.claim("low", "later")
    assert story.codes() == set()


def test_a_lowered_limit_stops_nothing_that_runs() -> None:
    story = Story()
    story.limit("acme", 2)
    story.insert("a", "b")
    story.claim("a", "b")
    story.limit("acme", 1)
    story.settle("a")
    assert story.codes() == set()


def test_a_limit_changed_at_the_moment_of_a_claim_may_be_either() -> None:
    story = Story()
    story.limit("acme", 1)
    story.insert("a", "b")
    story.claim("a")
    story.limit("acme", 2)
    story.tick -= 10  # the claim began while the limit was being changed
    story.claim("b")
    assert story.codes() == set()


def test_an_adopted_job_may_exceed_a_limit() -> None:
    story = Story()
    story.limit("acme", 1)
    story.insert("a")
    story.claim("a")
    story.adopt("pod")
    story.settle("a")
    assert story.codes() == set()


def test_reclaimed_jobs_run_again_and_the_late_word_is_refused() -> None:
    story = Story()
    story.insert("a")
    story.claim("a")
    old = story.tokens["a"]
    story.reclaim("a")
    story.refuse("a", old)
    story.claim("a")
    story.refuse("a", old)
    story.settle("a")
    assert story.codes(story.final(a=State.COMPLETED)) == set()


def test_a_redriven_job_may_end_again() -> None:
    story = Story()
    story.insert("a")
    story.claim("a")
    story.settle("a", State.FAILED)
    story.change(Action.RETRY, "a")
    story.claim("a")
    story.reclaim("a", ending=Ending.QUARANTINED)
    story.change(Action.RETRY, "a")
    story.claim("a")
    story.settle("a")
    assert story.codes(story.final(a=State.COMPLETED)) == set()


def test_an_insert_at_the_moment_of_a_claim_is_in_no_order() -> None:
    story = Story()
    story.insert("a")
    story.insert("urgent", priority=9)
    story.tick -= 10
    story.claim("a")
    assert story.codes() == set()


def test_an_unrecorded_claim_is_seen_by_its_reclaim() -> None:
    story = Story()
    story.configure(max_per_group=1)
    story.insert("a", "b")
    story.exchange("a", answered=False)
    story.reclaim("a")
    story.claim("a")
    story.exchange("b", settled=[story.sent("a")])
    assert story.codes() == set()


def test_an_unrecorded_claim_and_its_reclaim() -> None:
    story = Story()
    story.configure(max_per_group=2)
    story.insert("a", "b", "c")
    story.exchange("a", answered=False)
    story.claim("b", "c")
    story.reclaim("a", answered=False)
    story.settle("b")
    story.claim("a")
    story.settle("a")
    story.settle("c")
    assert story.codes(story.final(**dict.fromkeys("abc", State.COMPLETED))) == set()


def test_a_settlement_without_an_answer_is_decided_by_the_final_state() -> None:
    for state in (State.COMPLETED, State.RUNNING):
        story = Story()
        story.configure(max_per_group=1)
        story.insert("a", "b")
        story.claim("a")
        story.exchange("b", settled=[story.sent("a")], answered=False)
        assert story.codes(story.final(a=state, b=State.PENDING)) == set()


def test_an_unacknowledged_insert_may_be_there_or_not() -> None:
    story = Story()
    story.insert("a", answered=False)
    assert story.codes([]) == set()
    story.claim("a")
    assert story.codes(story.final(a=State.RUNNING)) == set()


def test_a_cancel_without_an_answer_may_have_ended_the_job() -> None:
    story = Story()
    story.insert("better", "a")
    story.change(Action.CANCEL, "better", answered=False)
    story.claim("a")
    assert story.codes(story.final(better=State.CANCELLED, a=State.RUNNING)) == set()


def test_a_job_with_a_cancel_request_ends_instead_of_waiting_again() -> None:
    story = Story()
    story.insert("a", "b")
    story.claim("a")
    story.change(Action.CANCEL, "a")
    story.settle("a", State.PENDING)
    story.claim("b")
    assert story.codes(story.final(a=State.CANCELLED, b=State.RUNNING)) == set()


def test_thousands_of_jobs_are_checked_in_seconds() -> None:
    story = Story()
    story.configure(max_per_group=2)
    groups = [[f"{group}-{number}" for number in range(50)] for group in range(100)]
    for index, ids in enumerate(groups):
        story.insert(*ids, group=f"g{index}")
    running: list[str] = []
    for turn in zip(*groups, strict=True):
        story.exchange(*turn, settled=[story.sent(job_id) for job_id in running])
        running = list(turn)
    began = time.process_time()
    assert story.codes() == set()
    assert time.process_time() - began < 10


def test_a_parked_workflow_is_woken_by_a_delivery() -> None:
    story = Story()
    story.insert("a", "b")
    story.claim("a")
    story.checkpoint("a")
    story.park("a")
    story.deliver("a")
    story.claim("a")
    story.settle("a")
    story.claim("b")
    assert story.codes() == set()


def test_a_cancelled_workflow_is_claimed_once_more_to_end_itself() -> None:
    story = Story()
    story.insert("a")
    story.claim("a")
    story.checkpoint("a")
    story.park("a")
    story.change(Action.CANCEL, "a")
    story.claim("a")
    story.settle("a", State.CANCELLED)
    assert story.codes(story.final(a=State.CANCELLED)) == set()


def test_a_checkpoint_starts_the_count_of_deaths_again() -> None:
    """The last claim says one death, as if nothing had happened between the two: an unrecorded claim died there."""
    story = Story()
    story.insert("a", "b")
    story.claim("a")
    story.reclaim("a")
    story.claim("a")
    story.checkpoint("a")
    story.settle("a", State.PENDING)
    story.exchange(answered=False)
    story.claim("b")
    story.deaths["a"] = 1
    story.claim("a")
    assert story.codes() == set()
