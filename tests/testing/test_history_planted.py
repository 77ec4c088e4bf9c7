"""Planted violations: each must be found, under its own code."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.testing.test_history_builder import Story

from jobyard.domain.job import Ending, State
from jobyard.ports.admin_store import Action
from jobyard.testing.history import CODES
from jobyard.testing.history.events import ExchangeReturned, RecordedExchange
from jobyard.testing.history.reader import RecordedOperation


def group_limit_exceeded(story: Story) -> None:
    story.limit("acme", 2)
    story.insert("a", "b", "c")
    story.claim("a", "b")
    story.claim("c")


def group_limit_exceeded_by_the_shared_limit(story: Story) -> None:
    story.configure(max_per_group=1)
    story.insert("a", "b")
    story.claim("a", "b")


def group_limit_exceeded_with_an_adopted_job(story: Story) -> None:
    story.limit("acme", 1)
    story.adopt("pod")
    story.insert("a")
    story.claim("a")


def group_limit_exceeded_after_a_kill(story: Story) -> None:
    story.limit("acme", 2)
    story.insert("a", "b", "c", "d")
    story.exchange("a", answered=False)
    story.reclaim("a")
    story.claim("a", "b")
    story.claim("c")


def queue_limit_exceeded(story: Story) -> None:
    story.configure(max_running=1)
    story.insert("a", group="one")
    story.insert("b", group="two")
    story.claim("a")
    story.claim("b")


def order_violated(story: Story) -> None:
    story.insert("a")
    story.insert("urgent", priority=5)
    story.claim("a")


def order_violated_by_sequence(story: Story) -> None:
    story.insert("a", "b")
    story.claim("b")


def order_violated_within_an_exchange(story: Story) -> None:
    story.insert("a", "b")
    story.claim("b", "a")


def order_violated_after_prioritise(story: Story) -> None:
    story.insert("a", "b")
    story.change(Action.PRIORITISE, "b", priority=7)
    story.claim("a")


def order_violated_after_a_kill(story: Story) -> None:
    """No death was counted for `a`, so the exchange that was not recorded cannot have claimed it."""
    story.insert("a", "b")
    story.exchange("a", answered=False)
    story.claim("b")
    story.claim("a")


def group_passed_twice(story: Story) -> None:
    story.insert("a1", "a2", "a3", group="a")
    story.insert("b1", group="b")
    story.claim("a1")
    story.claim("a2")
    story.claim("b1")


def group_passed_twice_within_an_exchange(story: Story) -> None:
    story.insert("a1", "a2", group="a")
    story.insert("b1", group="b")
    story.claim("a1", "a2", "b1")


def group_passed_twice_once_it_had_room(story: Story) -> None:
    story.limit("b", 1)
    story.insert("b1", "b2", group="b")
    story.insert("a1", "a2", "a3", group="a")
    story.claim("b1", "a1", "a2")
    story.settle("b1")
    story.claim("a3")


def claimed_while_paused(story: Story) -> None:
    story.insert("a")
    story.pause("acme")
    story.claim("a")


def claimed_while_paused_queue(story: Story) -> None:
    story.pause(None)
    story.insert("a")
    story.claim("a")


def claimed_before_due(story: Story) -> None:
    story.insert("a", run_at=story.now + 60_000)
    story.claim("a")


def claimed_before_due_after_delay(story: Story) -> None:
    story.insert("first")
    story.claim("first")
    story.insert("a", delay_seconds=60)
    story.claim("a")


def claimed_before_due_after_retry(story: Story) -> None:
    story.insert("a")
    story.claim("a")
    story.settle("a", State.PENDING, delay_seconds=30)
    story.claim("a")


def claimed_before_due_though_parked_without_a_delivery(story: Story) -> None:
    story.insert("a")
    story.claim("a")
    story.checkpoint("a")
    story.park("a")
    story.claim("a")


def claimed_cancelled_before_it_had_begun(story: Story) -> None:
    story.insert("a")
    story.change(Action.CANCEL, "a")
    story.claim("a")
    story.checkpoint("a")


def claimed_cancelled_twice(story: Story) -> None:
    story.insert("a")
    story.claim("a")
    story.checkpoint("a")
    story.park("a")
    story.change(Action.CANCEL, "a")
    story.change(Action.CANCEL, "a")
    story.claim("a")


def stale_renewal_accepted_as_a_checkpoint(story: Story) -> None:
    story.insert("a")
    story.claim("a")
    token = story.tokens["a"]
    story.reclaim("a")
    story.claim("a")
    story.checkpoint("a", token=token)


def claimed_cancelled(story: Story) -> None:
    story.insert("a")
    story.change(Action.CANCEL, "a")
    story.claim("a")


def claimed_deleted(story: Story) -> None:
    story.insert("a")
    story.change(Action.DELETE, "a")
    story.claim("a")


def claimed_after_end(story: Story) -> None:
    story.insert("a")
    story.claim("a")
    story.settle("a", State.FAILED)
    story.claim("a")


def claimed_after_end_by_quarantine(story: Story) -> None:
    story.insert("a")
    story.claim("a")
    story.reclaim("a", ending=Ending.QUARANTINED)
    story.claim("a")


def two_live_claims(story: Story) -> None:
    story.insert("a")
    story.claim("a")
    story.claim("a")


def two_live_claims_and_a_reclaim_too_late(story: Story) -> None:
    story.insert("a")
    story.claim("a")
    old = story.tokens["a"]
    story.claim("a")
    story.tokens["a"] = old
    story.reclaim("a")


def two_live_claims_without_a_death(story: Story) -> None:
    story.insert("a")
    story.claim("a")
    story.reclaim(answered=False)
    story.claim("a")


def token_repeated(story: Story) -> None:
    story.insert("a")
    story.claim("a")
    story.settle("a", State.PENDING)
    story.revision -= 2
    story.claim("a")


def unknown_token(story: Story) -> None:
    story.insert("a")
    story.claim("a")
    story.settle("a", token="forged")


def stale_token_accepted(story: Story) -> None:
    story.insert("a")
    story.claim("a")
    old = story.tokens["a"]
    story.reclaim("a")
    story.claim("a")
    story.settle("a", token=old)


def settled_after_reclaim(story: Story) -> None:
    story.insert("a")
    story.claim("a")
    story.reclaim("a")
    story.settle("a")


def reclaimed_twice(story: Story) -> None:
    story.insert("a")
    story.claim("a")
    story.reclaim("a")
    story.reclaim("a")


def settled_twice(story: Story) -> None:
    story.insert("a")
    story.claim("a")
    story.settle("a")
    story.settle("a")


def settled_twice_in_one_exchange(story: Story) -> None:
    story.insert("a")
    story.claim("a")
    story.exchange(settled=[story.sent("a"), story.sent("a")])


def ended_twice(story: Story) -> None:
    story.insert("a")
    story.claim("a")
    story.settle("a")
    story.claim("a")
    story.settle("a")


def stale_renewal_accepted(story: Story) -> None:
    story.insert("a")
    story.claim("a")
    old = story.tokens["a"]
    story.reclaim("a")
    story.report("a", old)


def refused_wrongly(story: Story) -> None:
    story.insert("a")
    story.claim("a")
    story.refuse("a")
    story.settle("a")


def reclaimed_early(story: Story) -> None:
    story.insert("a")
    story.claim("a")
    story.reclaim("a", after_ms=100)


def attempts_exceeded(story: Story) -> None:
    story.insert("a")
    story.attempts["a"] = 4
    story.claim("a")


def attempt_wrong(story: Story) -> None:
    story.insert("a")
    story.claim("a")
    story.reclaim("a")
    story.attempts["a"] = 2  # a death does not count as an attempt
    story.claim("a")


def sequence_changed(story: Story) -> None:
    story.insert("a")
    story.jobs["a"] = (story.jobs["a"][0], 7)
    story.claim("a")


def revision_repeated(story: Story) -> None:
    story.insert("a", "b")
    story.claim("a")
    story.revision -= 1
    story.claim("b")


def revision_order(story: Story) -> None:
    story.insert("a", "b")
    story.revision = 5
    story.claim("a")
    story.revision = 2
    story.claim("b")


def tick_decided_twice(story: Story) -> None:
    story.decide(1000)
    story.decide(1000)


def tick_decided_twice_in_calls_that_meet(story: Story) -> None:
    story.decide(1000)
    story.tick -= 10
    story.decide(1000)


def tick_decided_twice_in_one_call(story: Story) -> None:
    story.decide(1000, 1000)


def tick_decided_twice_after_another_beginning(story: Story) -> None:
    story.decide(1000)
    story.disarm()
    story.decide(1000)
    story.decide(1000)


def tick_decided_twice_though_nothing_was_disarmed(story: Story) -> None:
    story.decide(1000)
    story.disarm(was_armed=False)
    story.decide(1000)


def tick_went_back(story: Story) -> None:
    story.decide(1000, 3000)
    story.decide(2000)


PLANTED = [
    value
    for name, value in list(globals().items())
    if callable(value) and any(name == code or name.startswith(f"{code}_") for code in CODES)
]


@pytest.mark.parametrize("plant", PLANTED)
def test_each_planted_violation_is_found(plant: Callable[[Story], None]) -> None:
    story = Story()
    plant(story)
    code = max((code for code in CODES if plant.__name__.startswith(code)), key=len)
    assert code in story.codes()


def test_every_code_is_planted() -> None:
    planted = {code for code in CODES for plant in PLANTED if plant.__name__.startswith(code)}
    assert planted | {"job_lost", "final_state_wrong"} == set(CODES)


def test_an_exchange_that_changed_nothing_may_repeat_a_revision() -> None:
    story = Story()
    story.insert("a")
    story.claim("a")
    request = RecordedExchange(worker="w", queues=("q",), wanted=1)
    idle = RecordedOperation(
        request, story.tick, ExchangeReturned(revision=story.revision, now=story.now), story.tick + 5
    )
    story.history.operations.append(idle)
    assert story.codes() == set()
