"""Change: what operators may do to jobs, and in which states."""

from __future__ import annotations

import pytest
from tests.conformance.support import (
    LEASE_SECONDS,
    claim,
    claim_ids,
    claim_one,
    get_job,
    insert,
    insert_one,
    new,
    queue_info,
    running,
    settle,
)

from jobyard.domain.instant import FOREVER
from jobyard.domain.job import State
from jobyard.domain.outcome import Cancel, Done, Failed, Outcome, Park, TimedOut
from jobyard.ports.admin_store import Action, Changed
from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock

BAD_ENDS: list[Outcome] = [Failed(message="no"), TimedOut("late"), Cancel("enough")]


async def ended(store: Store, outcome: Outcome) -> str:
    lease = await running(store, max_attempts=1)
    await settle(store, lease, outcome)
    return lease.job_id


async def test_unknown_ids_are_in_neither_list(store: Store) -> None:
    for action in Action:
        assert await store.change(action, [new().id]) == Changed((), ())


async def test_ids_are_returned_in_the_given_order(store: Store) -> None:
    done = await ended(store, Done())
    ids = await insert(store, new(), new())
    assert await store.change(Action.CANCEL, [ids[1], done, ids[0]]) == Changed((ids[1], ids[0]), (done,))


async def test_cancelling_a_waiting_job_ends_it_now(store: Store, clock: ManualClock) -> None:
    job_id = await insert_one(store)
    assert await store.change(Action.CANCEL, [job_id], reason="enough") == Changed((job_id,), ())
    job = await get_job(store, job_id)
    assert (job.state, job.reason, job.attempt, job.errors) == (State.CANCELLED, "enough", 0, ())
    assert (job.finished_at, job.started_at, job.worker) == (clock.now(), None, None)
    assert await claim(store) == ()


async def test_cancelling_needs_no_reason(store: Store) -> None:
    job_id = await insert_one(store, delay_seconds=60)
    await store.change(Action.CANCEL, [job_id])
    assert (await get_job(store, job_id)).reason == "cancelled"


async def test_cancelling_a_running_job_requests_its_stop(store: Store) -> None:
    lease = await running(store)
    for _ in range(2):
        assert await store.change(Action.CANCEL, [lease.job_id]) == Changed((lease.job_id,), ())
    job = await get_job(store, lease.job_id)
    assert (job.state, job.cancel_requested) == (State.RUNNING, "cancelled")


@pytest.mark.parametrize("outcome", [Done(), *BAD_ENDS])
async def test_cancelling_an_ended_job_changes_nothing(store: Store, outcome: Outcome) -> None:
    job_id = await ended(store, outcome)
    before = await get_job(store, job_id)
    assert await store.change(Action.CANCEL, [job_id]) == Changed((), (job_id,))
    assert await get_job(store, job_id) == before


@pytest.mark.parametrize("outcome", BAD_ENDS)
async def test_a_retry_resets_attempts_and_keeps_errors_and_position(
    store: Store, clock: ManualClock, outcome: Outcome
) -> None:
    job_id = await ended(store, outcome)
    before = await get_job(store, job_id)
    clock.advance(5)
    assert await store.change(Action.RETRY, [job_id]) == Changed((job_id,), ())
    job = await get_job(store, job_id)
    assert (job.state, job.attempt, job.deaths, job.run_at) == (State.PENDING, 0, 0, clock.now())
    assert (job.result, job.reason, job.finished_at, job.cancel_requested) == (None,) * 4
    assert (job.started_at, job.worker) == (None, None)
    assert (job.errors, job.sequence, job.created_at) == (before.errors, before.sequence, before.created_at)
    assert (await claim_one(store)).attempt == 1


async def test_a_retry_resets_deaths_and_cancel_request(store: Store, clock: ManualClock) -> None:
    lease = await running(store)
    await store.change(Action.CANCEL, [lease.job_id])
    clock.advance(LEASE_SECONDS)
    await store.reclaim()
    await store.change(Action.RETRY, [lease.job_id])
    again = await claim_one(store)
    assert again.deaths == 0
    job = await get_job(store, lease.job_id)
    assert (job.deaths, job.cancel_requested) == (0, None)


async def test_a_retry_of_a_job_cancelled_before_it_ran(store: Store) -> None:
    job_id = await insert_one(store, delay_seconds=60)
    await store.change(Action.CANCEL, [job_id])
    await store.change(Action.RETRY, [job_id])
    assert await claim_ids(store) == [job_id]


async def test_only_unsuccessful_jobs_can_be_retried(store: Store) -> None:
    done = await ended(store, Done())
    active = (await running(store)).job_id
    waiting = await insert_one(store)
    assert await store.change(Action.RETRY, [done, active, waiting]) == Changed((), (done, active, waiting))


async def test_retried_jobs_join_in_the_given_order(store: Store) -> None:
    ids = await insert(store, *(new(group=name) for name in "abc"))
    await store.change(Action.CANCEL, ids)
    await store.change(Action.RETRY, [ids[1], ids[2], ids[0]])
    assert await claim_ids(store, 3) == [ids[1], ids[2], ids[0]]


async def test_all_but_running_jobs_can_be_deleted(store: Store) -> None:
    ends = [await ended(store, outcome) for outcome in (Done(), *BAD_ENDS)]
    active = (await running(store)).job_id
    waiting, delayed = await insert(store, new(), new(delay_seconds=60))
    everything = [*ends, waiting, active, delayed]
    response = await store.change(Action.DELETE, everything)
    assert response == Changed((*ends, waiting, delayed), (active,))
    assert [job_id for job_id in everything if await store.get(job_id)] == [active]
    info = await queue_info(store)
    counts = (info.waiting, info.delayed, info.running, info.completed, info.failed, info.cancelled)
    assert counts == (0, 0, 1, 0, 0, 0)
    assert await claim(store) == ()


async def test_the_id_of_a_deleted_job_can_be_reused(store: Store) -> None:
    job_id = await insert_one(store)
    await store.change(Action.DELETE, [job_id])
    assert (await store.insert([new(id=job_id)]))[0].created


async def test_only_waiting_jobs_can_be_reprioritised(store: Store, clock: ManualClock) -> None:
    done = await ended(store, Done())
    active = (await running(store)).job_id
    first, second, delayed = await insert(store, new(), new(), new(delay_seconds=1))
    response = await store.change(Action.PRIORITISE, [done, active, second, delayed], priority=5)
    assert response == Changed((second, delayed), (done, active))
    assert (await get_job(store, second)).priority == 5
    assert (await get_job(store, delayed)).priority == 5
    clock.advance(1)
    assert await claim_ids(store, 3) == [second, delayed, first]


async def test_run_now_makes_a_delayed_job_due(store: Store, clock: ManualClock) -> None:
    soon, never = await insert(store, new(group="a", delay_seconds=60), new(group="b", run_at=FOREVER))
    await insert_one(store, group="c")
    assert await store.change(Action.RUN_NOW, [never, soon]) == Changed((never, soon), ())
    assert (await get_job(store, soon)).run_at == clock.now()
    assert [lease.group for lease in await claim(store, 5)] == ["c", "b", "a"]


async def test_run_now_is_for_delayed_jobs_only(store: Store) -> None:
    done = await ended(store, Done())
    parked = await running(store)
    await settle(store, parked, Park("go", 60))
    active = (await running(store)).job_id
    due = await insert_one(store)
    ids = [done, parked.job_id, active, due]
    assert await store.change(Action.RUN_NOW, ids) == Changed((), tuple(ids))
    assert (await get_job(store, parked.job_id)).waiting_for == "go"


async def test_a_job_cancelled_while_no_worker_is_up_never_starts(store: Store, clock: ManualClock) -> None:
    job_id = await insert_one(store, delay_seconds=1)
    await store.change(Action.CANCEL, [job_id])
    clock.advance(2)
    assert await claim(store) == ()
