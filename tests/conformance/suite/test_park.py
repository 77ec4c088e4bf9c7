"""Park: a job frees its slot and waits for a signal or a deadline."""

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
    promote_due_jobs,
    queue_info,
    running,
    settle,
    settlement,
)

from jobyard.domain.instant import FOREVER
from jobyard.domain.job import State
from jobyard.domain.lease import Lease
from jobyard.domain.outcome import Done, Failed, Park, Release
from jobyard.errors import JobNotFound, NotPossible
from jobyard.ports.admin_store import Action
from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock


async def parked(store: Store, name: str = "go", seconds: float | None = None) -> Lease:
    lease = await running(store)
    await settle(store, lease, Park(name, seconds))
    return lease


async def test_a_parked_job_frees_its_slot(store: Store, clock: ManualClock) -> None:
    lease = await parked(store)
    job = await get_job(store, lease.job_id)
    assert (job.state, job.waiting_for, job.run_at, job.attempt) == (State.PENDING, "go", FOREVER, 0)
    info = await queue_info(store)
    assert (info.running, info.waiting, info.delayed) == (0, 0, 1)
    clock.advance(1e6)
    assert await claim(store) == ()


async def test_a_signal_wakes_a_parked_job_with_data(store: Store, clock: ManualClock) -> None:
    lease = await parked(store)
    clock.advance(1)
    assert await store.signal(lease.job_id, "go", b'{"a": 1}') is True
    job = await get_job(store, lease.job_id)
    assert (job.state, job.waiting_for, job.run_at) == (State.PENDING, None, clock.now())
    again = await claim_one(store)
    assert (again.job_id, again.signal, again.attempt) == (lease.job_id, b'{"a": 1}', 1)


async def test_a_signal_without_data_is_null(store: Store) -> None:
    lease = await parked(store)
    await store.signal(lease.job_id, "go")
    assert (await claim_one(store)).signal == b"null"


async def test_another_signal_does_not_wake_it(store: Store) -> None:
    lease = await parked(store)
    assert await store.signal(lease.job_id, "stay") is False
    assert (await get_job(store, lease.job_id)).waiting_for == "go"
    assert await claim(store) == ()


async def test_a_signal_before_the_park_is_remembered(store: Store, clock: ManualClock) -> None:
    lease = await running(store)
    assert await store.signal(lease.job_id, "go", b"1") is False
    clock.advance(1)
    response = await store.exchange(WORKER, [settlement(lease, Park("go"))], ["default"], 1, LEASE_SECONDS)
    [again] = response.leases
    assert (again.job_id, again.signal) == (lease.job_id, b"1")
    assert (await get_job(store, lease.job_id)).run_at == clock.now()


async def test_a_signal_to_a_job_that_has_not_started_is_remembered(store: Store) -> None:
    job_id = await insert_one(store)
    assert await store.signal(job_id, "go", b"1") is False
    lease = await claim_one(store)
    assert lease.signal is None
    await settle(store, lease, Park("go"))
    assert (await claim_one(store)).signal == b"1"


async def test_signals_of_a_name_are_taken_in_order(store: Store) -> None:
    lease = await running(store)
    for name, data in (("go", b"1"), ("stay", b"2"), ("go", b"3")):
        await store.signal(lease.job_id, name, data)
    for name, data in (("go", b"1"), ("stay", b"2"), ("go", b"3")):
        await settle(store, lease, Park(name))
        lease = await claim_one(store)
        assert lease.signal == data


async def test_a_remembered_signal_is_used_once(store: Store) -> None:
    lease = await running(store)
    await store.signal(lease.job_id, "go")
    await settle(store, lease, Park("go"))
    await settle(store, await claim_one(store), Park("go"))
    assert (await get_job(store, lease.job_id)).waiting_for == "go"


async def test_delivered_data_stays_until_the_next_park(store: Store, clock: ManualClock) -> None:
    lease = await parked(store)
    await store.signal(lease.job_id, "go", b"1")
    await settle(store, await claim_one(store), Failed(message="again"))
    clock.advance(10)
    lease = await claim_one(store)
    assert lease.signal == b"1"
    await settle(store, lease, Release())
    lease = await claim_one(store)
    assert lease.signal == b"1"
    await settle(store, lease, Park("go", 5))
    clock.advance(5)
    assert (await claim_one(store)).signal is None


async def test_delivered_data_is_removed_at_the_end(store: Store) -> None:
    lease = await parked(store)
    await store.signal(lease.job_id, "go", b"1")
    await settle(store, await claim_one(store), Failed(message="no", retry=False))
    await store.change(Action.RETRY, [lease.job_id])
    assert (await claim_one(store)).signal is None


async def test_the_deadline_wakes_it_without_data(store: Store, clock: ManualClock) -> None:
    lease = await parked(store, seconds=60)
    assert (await get_job(store, lease.job_id)).run_at == clock.now() + 60_000
    assert (await promote_due_jobs(store)).next_due_at == clock.now() + 60_000
    clock.advance(60)
    await promote_due_jobs(store)
    assert (await get_job(store, lease.job_id)).waiting_for is None
    assert (await claim_one(store)).signal is None


async def test_a_signal_after_the_deadline_is_remembered(store: Store, clock: ManualClock) -> None:
    lease = await parked(store, seconds=60)
    clock.advance(60)
    assert await store.signal(lease.job_id, "go", b"1") is False
    again = await claim_one(store)
    assert again.signal is None
    await settle(store, again, Park("go"))
    assert (await claim_one(store)).signal == b"1"


async def test_a_park_of_zero_seconds_is_due_at_once(store: Store) -> None:
    lease = await parked(store, seconds=0)
    assert (await get_job(store, lease.job_id)).waiting_for is None
    assert (await claim_one(store)).job_id == lease.job_id


async def test_a_woken_job_joins_the_line(store: Store) -> None:
    lease = await parked(store)
    await store.insert([new(group="b")])
    await store.signal(lease.job_id, "go")
    assert [one.group for one in await claim(store, 5)] == ["b", None]


async def test_a_finished_job_cannot_be_signalled(store: Store) -> None:
    lease = await running(store)
    await settle(store, lease, Done())
    with pytest.raises(NotPossible):
        await store.signal(lease.job_id, "go")
    with pytest.raises(JobNotFound):
        await store.signal(new().id, "go")


async def test_a_parked_job_can_be_cancelled(store: Store) -> None:
    lease = await parked(store)
    await store.change(Action.CANCEL, [lease.job_id])
    job = await get_job(store, lease.job_id)
    assert (job.state, job.waiting_for) == (State.CANCELLED, None)
