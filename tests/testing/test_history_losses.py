"""Jobs that disappeared or ended without a recorded call, and the jobs of ticks."""

from __future__ import annotations

import pytest
from tests.testing.test_history_builder import Story

from jobyard.domain.job import State
from jobyard.ports.admin_store import Action
from jobyard.ports.schedule_store import Decision


def test_ticks_that_are_decided_once() -> None:
    story = Story()
    story.decide(1000, 2000)
    story.decide(2000, decision=Decision.KNOWN)
    story.decide(4000)
    story.tick -= 10
    story.decide(3000)  # met the one before
    story.disarm()
    story.decide(1000)
    assert story.codes() == set()


def test_the_job_of_a_tick_is_a_job_like_any_other() -> None:
    story = Story()
    story.decide(1000, job_id="a")
    story.decide(2000, job_id="b")
    story.claim("a")
    story.settle("a")
    assert story.codes(story.final(a=State.COMPLETED)) == {"job_lost"}
    assert story.codes(story.final(a=State.COMPLETED, b=State.PENDING)) == set()
    story.claim("b")
    story.limit("acme", 0)
    story.decide(3000, job_id="c")
    story.claim("c")
    assert "group_limit_exceeded" in story.codes()


def test_the_job_of_a_tick_on_an_unavailable_store_may_or_may_not_exist() -> None:
    story = Story()
    story.decide(1000, job_id="a", decision=Decision.UNAVAILABLE)
    assert story.codes([]) == set()
    story.claim("a")
    story.settle("a")
    assert story.codes(story.final(a=State.COMPLETED)) == set()
    story.decide(1000, decision=Decision.MADE)
    assert story.codes(story.final(a=State.COMPLETED)) == set()


def test_a_job_that_vanished_is_lost() -> None:
    story = Story()
    story.insert("a", "b")
    story.claim("a")
    assert story.codes([]) == {"job_lost"}
    assert story.codes(story.final(a=State.RUNNING)) == {"job_lost"}


def test_a_redriven_job_that_vanished_is_lost() -> None:
    story = Story()
    story.insert("a", "b")
    story.claim("a")
    story.settle("a", State.FAILED)
    story.claim("b")
    story.change(Action.RETRY, "a")
    assert story.codes(story.final(b=State.RUNNING)) == {"job_lost"}


def test_a_kill_elsewhere_does_not_excuse_a_lost_job() -> None:
    story = Story()
    story.insert("a", "b")
    story.claim("a")
    story.exchange("b", settled=[story.sent("a")], answered=False)
    assert story.codes(story.final(a=State.COMPLETED)) == {"job_lost"}


@pytest.mark.parametrize("state", [State.PENDING, State.RUNNING, State.FAILED])
def test_a_completion_that_was_forgotten(state: State) -> None:
    story = Story()
    story.insert("a")
    story.claim("a")
    story.settle("a")
    assert story.codes(story.final(a=state)) == {"final_state_wrong"}


def test_a_completion_without_a_call() -> None:
    story = Story()
    story.insert("a")
    assert story.codes(story.final(a=State.COMPLETED)) == {"final_state_wrong"}
