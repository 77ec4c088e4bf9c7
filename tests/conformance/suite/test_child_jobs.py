"""Child jobs: inserted once, and every end is recorded until it is delivered."""

from __future__ import annotations

import pytest
from tests.conformance.support import (
    LEASE_SECONDS,
    claim,
    claim_one,
    configure,
    get_job,
    insert,
    new,
    running,
    settle,
    settlement,
)

from jobyard.domain.history import Delivery, EndedJob, HistoryEntry
from jobyard.domain.job import Parent, State, Unique
from jobyard.domain.outcome import Cancel, Done, Failed, Release, Snooze, TimedOut
from jobyard.errors import BadInput, QueueFull
from jobyard.ports.admin_store import Action
from jobyard.ports.store import Store
from jobyard.ports.workflow_store import Checkpoint
from jobyard.testing.clock import ManualClock

PARENT = Parent("the parent", "1:scan", "7", depth=3)


async def test_a_child_knows_its_parent(store: Store) -> None:
    lease = await running(store, parent=PARENT)
    assert lease.parent == PARENT
    job = await get_job(store, lease.job_id)
    assert (job.parent_id, job.is_workflow) == ("the parent", False)
    other = await running(store, is_workflow=True)
    job = await get_job(store, other.job_id)
    assert (other.parent, other.is_workflow, job.parent_id, job.is_workflow) == (None, True, None, True)


async def test_a_child_is_inserted_once(store: Store) -> None:
    job = new(parent=PARENT)
    [first] = await store.insert([job])
    again = await store.insert([job, new(parent=PARENT, id=job.id, kind="other"), new()])
    assert first.created
    assert [(each.id == job.id, each.created) for each in again] == [(True, False), (True, False), (False, True)]
    assert len(await claim(store, 9)) == 2


async def test_an_id_is_still_refused_for_other_jobs(store: Store) -> None:
    job = new(parent=PARENT)
    await insert(store, job)
    with pytest.raises(BadInput):
        await store.insert([new(id=job.id)])


async def test_a_held_unique_key_answers_the_holder(store: Store) -> None:
    [holder] = await insert(store, new(unique=Unique("k")))
    [child] = await store.insert([new(unique=Unique("k"), parent=PARENT)])
    assert (child.id, child.created) == (holder, False)


async def test_a_full_queue_refuses_children(store: Store) -> None:
    await configure(store, max_waiting=1)
    with pytest.raises(QueueFull):
        await store.insert([new(parent=PARENT), new(parent=PARENT)])
    assert await store.ended_jobs() == []


async def test_a_completed_child_is_recorded_with_its_result(store: Store) -> None:
    lease = await running(store, parent=PARENT)
    await settle(store, lease, Done(b'{"n":1}'))
    expected = EndedJob(job_id=lease.job_id, state=State.COMPLETED, parent=PARENT, result=b'{"n":1}')
    assert await store.ended_jobs() == [expected]
    assert await store.ended_jobs() == [expected]
    await store.forget_ended([lease.job_id, "no such job"])
    assert await store.ended_jobs() == []


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Failed(message="broken", retry=False), State.FAILED),
        (TimedOut("too slow"), State.TIMEOUT),
        (Cancel("not needed"), State.CANCELLED),
    ],
)
async def test_every_final_state_is_recorded(store: Store, outcome: Failed | TimedOut | Cancel, state: State) -> None:
    lease = await running(store, parent=PARENT, max_attempts=1)
    await settle(store, lease, outcome)
    job = await get_job(store, lease.job_id)
    [ended] = await store.ended_jobs()
    assert (ended.job_id, ended.state, ended.parent, ended.result) == (lease.job_id, state, PARENT, None)
    assert ended.reason is not None
    assert ended.reason == job.reason


async def test_an_attempt_that_is_not_the_end_records_nothing(store: Store, clock: ManualClock) -> None:
    for outcome in (Failed(message="again"), Snooze(1), Release()):
        lease = await running(store, parent=PARENT)
        await settle(store, lease, outcome)
        assert await store.ended_jobs() == []


async def test_cancelled_and_deleted_children_are_recorded(store: Store) -> None:
    cancelled, deleted, claimed = new(parent=PARENT), new(parent=PARENT), new(parent=PARENT)
    await insert(store, claimed)
    lease = await claim_one(store)
    await insert(store, cancelled, deleted)
    await store.change(Action.CANCEL, [cancelled.id, claimed.id], reason="enough")
    await store.change(Action.DELETE, [deleted.id])
    await settle(store, lease, Release())
    ends = {each.job_id: each.state for each in await store.ended_jobs()}
    assert ends == {cancelled.id: State.CANCELLED, deleted.id: None, claimed.id: State.CANCELLED}


async def test_a_deleted_child_that_had_ended_is_recorded_once(store: Store) -> None:
    lease = await running(store, parent=PARENT)
    await settle(store, lease, Done(b"1"))
    await store.change(Action.DELETE, [lease.job_id])
    [ended] = await store.ended_jobs()
    assert (ended.state, ended.result) == (State.COMPLETED, b"1")


async def test_a_quarantined_child_is_recorded(store: Store, clock: ManualClock) -> None:
    await insert(store, new(parent=PARENT))
    for _ in range(3):
        await claim_one(store)
        clock.advance(LEASE_SECONDS + 1)
        await store.reclaim()
    [ended] = await store.ended_jobs()
    assert ended.state is State.FAILED
    assert "quarantined" in (ended.reason or "")


async def test_a_child_beyond_retention_is_recorded(store: Store) -> None:
    await configure(store, keep_completed=1, keep_completed_seconds=0)
    jobs = [new(parent=PARENT) for _ in range(20)]
    await insert(store, *jobs)
    leases = await claim(store, 20)
    await store.exchange("worker-1", [settlement(lease, Done(b"5")) for lease in leases], ("default",), 0, 15)
    await store.prune()
    ends = await store.ended_jobs()
    assert {each.job_id for each in ends} == {job.id for job in jobs}
    assert {each.result for each in ends} == {b"5"}


async def test_children_and_others_in_one_exchange(store: Store) -> None:
    jobs = [new(parent=PARENT) if n % 2 else new() for n in range(10)]
    await insert(store, *jobs)
    leases = await claim(store, 10)
    await store.exchange("worker-1", [settlement(lease, Done()) for lease in leases], ("default",), 0, 15)
    ends = await store.ended_jobs(limit=3)
    assert len(ends) == 3
    await store.forget_ended([each.job_id for each in ends])
    ends += await store.ended_jobs()
    assert {each.job_id for each in ends} == {job.id for job in jobs if job.parent}


async def test_a_private_payload_is_erased_and_a_key_freed(store: Store) -> None:
    lease = await running(store, parent=PARENT, private_payload=b'"secret"', unique=Unique("k"), tags=("x",))
    await settle(store, lease, Done())
    [again] = await store.insert([new(unique=Unique("k"), parent=PARENT)])
    assert again.created
    assert len(await store.ended_jobs()) == 1


async def test_a_second_end_of_a_retried_child_is_not_kept_with_the_first(store: Store) -> None:
    lease = await running(store, parent=PARENT, max_attempts=1)
    await settle(store, lease, Failed(message="broken"))
    await store.change(Action.RETRY, [lease.job_id])
    await settle(store, await claim_one(store), Done(b"1"))
    [ended] = await store.ended_jobs()
    assert ended.state is State.FAILED


async def test_a_workflow_that_has_begun_and_fails_is_recorded(store: Store) -> None:
    for outcome, expected in ((Done(), 0), (Failed(message="no", retry=False), 1)):
        for has_begun in (False, True):
            lease = await running(store, is_workflow=True)
            if has_begun:
                await store.checkpoint([Checkpoint(key=lease.key, entries=(HistoryEntry(key="a"),))])
            await settle(store, lease, outcome)
            ends = await store.ended_jobs()
            assert len(ends) == (expected if has_begun else 0)
    assert (ends[0].job_id, ends[0].is_workflow, ends[0].parent) == (lease.job_id, True, None)


async def test_a_workflow_can_be_a_child(store: Store) -> None:
    lease = await running(store, is_workflow=True, parent=PARENT)
    assert (lease.is_workflow, lease.parent) == (True, PARENT)
    await settle(store, lease, Done(b"2"))
    [ended] = await store.ended_jobs()
    assert (ended.is_workflow, ended.parent, ended.result) == (True, PARENT, b"2")


async def test_a_delivery_forgets_ends_with_it(store: Store) -> None:
    parent = await running(store, is_workflow=True)
    children = [await running(store, parent=Parent(parent.job_id, "kids", key)) for key in "abc"]
    for child in children:
        await settle(store, child, Done())
    ids = [child.job_id for child in children]
    await store.deliver([Delivery(parent.job_id, "kids", "a", b"1")], [ids[0], "no such job"])
    assert [entry.key for entry in await store.history(parent.job_id, "kids")] == ["a"]
    assert [end.job_id for end in await store.ended_jobs()] == ids[1:]
    await store.deliver([], [ids[1]])
    assert [end.job_id for end in await store.ended_jobs()] == ids[2:]
