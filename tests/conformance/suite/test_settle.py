"""Settle: what each outcome does to the job, and which tokens may settle it."""

from __future__ import annotations

import pytest
from tests.conformance.support import (
    LEASE_SECONDS,
    WORKER,
    claim,
    claim_one,
    get_job,
    insert_one,
    new,
    queue_info,
    running,
    settle,
    settlement,
    stale,
)

from jobyard.domain.instant import FOREVER
from jobyard.domain.job import Ending, State
from jobyard.domain.lease import LeaseKey
from jobyard.domain.outcome import Cancel, Done, Failed, Handoff, Outcome, Park, Release, Snooze, TimedOut
from jobyard.domain.state import Settlement, judge
from jobyard.ports.admin_store import Action
from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock

EVERY_OUTCOME: list[Outcome] = [
    Done(),
    Failed(message="no"),
    Failed(message="no", retry=False),
    TimedOut("late"),
    Snooze(5),
    Cancel("enough"),
    Handoff("pod-1"),
    Park("go"),
    Release(),
]


async def test_a_claimed_job_runs(store: Store, clock: ManualClock) -> None:
    lease = await running(store)
    job = await get_job(store, lease.job_id)
    assert (job.state, job.attempt, job.worker, job.started_at) == (State.RUNNING, 1, WORKER, clock.now())
    assert (job.finished_at, job.errors) == (None, ())


async def test_done(store: Store, clock: ManualClock) -> None:
    lease = await running(store)
    started = clock.now()
    clock.advance(3)
    await settle(store, lease, Done(b'{"answer": 42}'))
    job = await get_job(store, lease.job_id)
    assert (job.state, job.attempt, job.reason, job.errors) == (State.COMPLETED, 1, None, ())
    assert job.result is not None
    assert bytes(job.result) == b'{"answer": 42}'
    assert (job.started_at, job.finished_at, job.worker) == (started, clock.now(), WORKER)


async def test_a_failure_with_attempts_left_is_retried_after_its_backoff(store: Store, clock: ManualClock) -> None:
    lease = await running(store)
    clock.advance(1)
    await settle(store, lease, Failed(message="no", type="ValueError", traceback="line 1"))
    job = await get_job(store, lease.job_id)
    assert (job.state, job.attempt, job.run_at) == (State.PENDING, 1, clock.now() + 10_000)
    assert (job.started_at, job.worker, job.finished_at, job.result, job.reason) == (None,) * 5
    [error] = job.errors
    assert (error.attempt, error.ending, error.message, error.at) == (1, Ending.ERROR, "no", clock.now())
    assert (error.type, error.traceback, error.worker) == ("ValueError", "line 1", WORKER)
    assert await claim(store) == ()
    clock.advance(10)
    assert (await claim_one(store)).attempt == 2


async def test_a_failure_of_the_last_attempt_is_final(store: Store, clock: ManualClock) -> None:
    job_id = await insert_one(store, max_attempts=2)
    for _ in range(2):
        await settle(store, await claim_one(store), Failed(message="no"))
        clock.advance(10)
    job = await get_job(store, job_id)
    assert (job.state, job.attempt, job.reason, job.worker) == (State.FAILED, 2, "no", WORKER)
    assert [error.attempt for error in job.errors] == [1, 2]
    assert job.finished_at == clock.now() - 10_000
    assert await claim(store) == ()


async def test_a_failure_may_be_final(store: Store) -> None:
    lease = await running(store)
    await settle(store, lease, Failed(message="no", retry=False))
    assert (await get_job(store, lease.job_id)).state is State.FAILED


async def test_a_timeout_is_retried_until_the_attempts_are_used(store: Store, clock: ManualClock) -> None:
    job_id = await insert_one(store, max_attempts=2)
    await settle(store, await claim_one(store), TimedOut("late"))
    assert (await get_job(store, job_id)).state is State.PENDING
    clock.advance(10)
    await settle(store, await claim_one(store), TimedOut("late"))
    job = await get_job(store, job_id)
    assert (job.state, job.attempt, job.reason) == (State.TIMEOUT, 2, "late")
    assert [error.ending for error in job.errors] == [Ending.TIMEOUT, Ending.TIMEOUT]


async def test_a_snooze_is_not_counted(store: Store, clock: ManualClock) -> None:
    lease = await running(store, max_attempts=1)
    await settle(store, lease, Snooze(5))
    job = await get_job(store, lease.job_id)
    assert (job.state, job.attempt, job.run_at, job.errors) == (State.PENDING, 0, clock.now() + 5000, ())
    clock.advance(5)
    assert (await claim_one(store)).attempt == 1


async def test_a_release_is_due_at_once_and_not_counted(store: Store, clock: ManualClock) -> None:
    lease = await running(store)
    clock.advance(1)
    await settle(store, lease, Release())
    job = await get_job(store, lease.job_id)
    assert (job.state, job.attempt, job.run_at, job.started_at) == (State.PENDING, 0, clock.now(), None)
    assert (await claim_one(store)).attempt == 1


async def test_an_attempt_may_cancel_its_job(store: Store) -> None:
    lease = await running(store)
    await settle(store, lease, Cancel("not needed"))
    job = await get_job(store, lease.job_id)
    assert (job.state, job.attempt, job.reason) == (State.CANCELLED, 1, "not needed")
    assert [error.ending for error in job.errors] == [Ending.CANCELLED]


@pytest.mark.parametrize("outcome", EVERY_OUTCOME, ids=lambda outcome: type(outcome).__name__)
async def test_a_stale_token_changes_nothing(store: Store, outcome: Outcome) -> None:
    lease = await running(store)
    before = await get_job(store, lease.job_id)
    key = stale(lease.key)
    response = await store.exchange(WORKER, [Settlement(key, judge(lease, outcome))], ["default"], 0, LEASE_SECONDS)
    assert response.refused == (key,)
    assert await get_job(store, lease.job_id) == before


@pytest.mark.parametrize("outcome", [Done(), Failed(message="no"), Cancel("no"), Park("go"), Release()])
async def test_a_token_settles_once(store: Store, outcome: Outcome) -> None:
    lease = await running(store)
    twice = [settlement(lease, outcome), settlement(lease, Done(b"2"))]
    response = await store.exchange(WORKER, twice, ["default"], 0, LEASE_SECONDS)
    assert response.refused == (lease.key,)
    before = await get_job(store, lease.job_id)
    assert (await settle(store, lease, Done(b"3"))).refused == (lease.key,)
    assert await get_job(store, lease.job_id) == before


async def test_an_earlier_attempt_cannot_settle_a_later_one(store: Store) -> None:
    former = await running(store)
    await settle(store, former, Release())
    present = await claim_one(store)
    assert present.token != former.token
    assert (await settle(store, former, Done())).refused == (former.key,)
    assert (await settle(store, present, Done())).refused == ()


async def test_settling_an_unknown_or_deleted_job_is_refused(store: Store) -> None:
    lease = await running(store)
    await settle(store, lease, Done())
    await store.change(Action.DELETE, [lease.job_id])
    unknown = LeaseKey(new().id, 999, lease.token)
    both = [settlement(lease, Done()), Settlement(unknown, judge(lease, Done()))]
    assert (await store.exchange(WORKER, both, ["default"], 0, LEASE_SECONDS)).refused == (lease.key, unknown)


async def test_refused_settlements_do_not_affect_others(store: Store) -> None:
    first, second = await running(store), await running(store)
    mixed = [
        Settlement(stale(first.key), judge(first, Done())),
        settlement(second, Done()),
        Settlement(stale(second.key), judge(second, Done())),
    ]
    response = await store.exchange(WORKER, mixed, ["default"], 0, LEASE_SECONDS)
    assert response.refused == (stale(first.key), stale(second.key))
    assert (await get_job(store, first.job_id)).state is State.RUNNING
    assert (await get_job(store, second.job_id)).state is State.COMPLETED


async def test_any_worker_with_the_token_may_settle(store: Store) -> None:
    lease = await running(store)
    response = await store.exchange("another", [settlement(lease, Done())], ["default"], 0, LEASE_SECONDS)
    assert response.refused == ()


async def test_one_claim_has_one_token_and_each_claim_its_own(store: Store) -> None:
    await store.insert([new() for _ in range(4)])
    first, second = await claim(store, 2), await claim(store, 2)
    assert len({lease.token for lease in first}) == 1
    assert first[0].token != second[0].token
    assert len(first[0].token) == 16
    assert int(first[0].token, 16) >= 0


async def test_a_handed_off_job_keeps_its_slot_and_its_token(store: Store, clock: ManualClock) -> None:
    lease = await running(store, max_attempts=2)
    await settle(store, lease, Handoff("pod-1"))
    job = await get_job(store, lease.job_id)
    assert (job.state, job.attempt, job.external_id, job.worker) == (State.RUNNING, 1, "pod-1", WORKER)
    assert (await queue_info(store)).running == 1
    clock.advance(1e6)
    assert await store.reclaim() == []
    assert (await settle(store, lease, Done())).refused == ()
    job = await get_job(store, lease.job_id)
    assert (job.state, job.attempt) == (State.COMPLETED, 1)


async def test_a_handed_off_job_may_be_requeued(store: Store, clock: ManualClock) -> None:
    lease = await running(store)
    await settle(store, lease, Handoff("pod-1"))
    await settle(store, lease, Failed(message="evicted"))
    job = await get_job(store, lease.job_id)
    assert (job.state, job.attempt, job.external_id) == (State.PENDING, 1, None)
    clock.advance(10)
    again = await claim_one(store)
    assert again.attempt == 2
    assert (await get_job(store, lease.job_id)).external_id is None


async def test_renewing_a_handed_off_job_sets_no_expiry(store: Store, clock: ManualClock) -> None:
    lease = await running(store)
    await settle(store, lease, Handoff("pod-1"))
    assert (await store.extend(WORKER, [lease.key], 1)).lost == ()
    clock.advance(1e6)
    assert await store.reclaim() == []


@pytest.mark.parametrize(
    "outcome", [Failed(message="no"), TimedOut("late"), Snooze(5), Park("go"), Park("go", 3), Release()]
)
async def test_a_job_with_a_cancel_request_is_not_requeued(store: Store, outcome: Outcome) -> None:
    lease = await running(store)
    await store.change(Action.CANCEL, [lease.job_id], reason="enough")
    await settle(store, lease, outcome)
    job = await get_job(store, lease.job_id)
    assert (job.state, job.reason, job.waiting_for) == (State.CANCELLED, "enough", None)


async def test_a_job_with_a_cancel_request_may_still_complete(store: Store) -> None:
    lease = await running(store)
    await store.change(Action.CANCEL, [lease.job_id], reason="enough")
    await settle(store, lease, Done())
    job = await get_job(store, lease.job_id)
    assert (job.state, job.reason, job.cancel_requested) == (State.COMPLETED, None, None)


async def test_a_delay_beyond_the_time_range_is_forever(store: Store) -> None:
    lease = await running(store)
    await settle(store, lease, Snooze(1e30))
    assert (await get_job(store, lease.job_id)).run_at == FOREVER
