"""Waiting exchange: an exchange with `until` that waits for a job to claim."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.conformance.support import (
    LEASE_SECONDS,
    WORKER,
    claim,
    claim_one,
    configure,
    get_job,
    insert_one,
    new,
    running,
    settle,
)

from jobyard.domain.job import State
from jobyard.domain.outcome import Done
from jobyard.ports.admin_store import Action
from jobyard.ports.job_store import Exchange
from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock

TIMEOUT_SECONDS = 60.0


class WaitingClaim:
    """A worker's waiting exchange, repeated while it returns nothing, as a worker does."""

    def __init__(self, store: Store, wanted: int = 1, worker: str = WORKER) -> None:
        self._start: Callable[[], asyncio.Task[Exchange]] = lambda: asyncio.create_task(
            store.exchange(worker, [], ["default"], wanted, LEASE_SECONDS, self.until)
        )
        self.until: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.task = self._start()

    async def answer(self) -> Exchange:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                response = await self.task
                if response.leases or response.cancelled or self.until.done():
                    return response
                self.task = self._start()

    async def assert_waiting(self) -> None:
        """Check that the exchange has not returned."""
        done, _ = await asyncio.wait([self.task], timeout=0.05)
        assert not done


async def test_a_new_job_is_claimed(store: Store) -> None:
    claimer = WaitingClaim(store)
    await claimer.assert_waiting()
    job_id = await insert_one(store)
    [lease] = (await claimer.answer()).leases
    assert lease.job_id == job_id
    assert (await get_job(store, job_id)).state is State.RUNNING
    await settle(store, lease, Done())


async def test_an_available_job_is_claimed_at_once(store: Store) -> None:
    await store.insert([new() for _ in range(3)])
    assert len((await WaitingClaim(store, wanted=2).answer()).leases) == 2


async def test_at_most_the_wanted_number_is_claimed_while_waiting(store: Store) -> None:
    claimer = WaitingClaim(store, wanted=2)
    await claimer.assert_waiting()
    await store.insert([new() for _ in range(3)])
    assert 1 <= len((await claimer.answer()).leases) <= 2
    assert len(await claim(store, 3)) >= 1


async def test_until_ends_the_wait(store: Store) -> None:
    claimer = WaitingClaim(store)
    await claimer.assert_waiting()
    claimer.until.set_result(None)
    response = await claimer.answer()
    assert response.leases == ()
    job_id = await insert_one(store)
    assert (await claim_one(store)).job_id == job_id


async def test_until_that_is_already_done(store: Store) -> None:
    claimer = WaitingClaim(store)
    claimer.until.set_result(None)
    assert (await claimer.answer()).leases == ()


async def test_a_cancelled_caller_claims_nothing(store: Store) -> None:
    claimer = WaitingClaim(store)
    await claimer.assert_waiting()
    claimer.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claimer.task
    job_id = await insert_one(store)
    assert (await claim_one(store)).job_id == job_id


async def test_one_job_goes_to_one_of_several_waiting_claims(store: Store) -> None:
    claimers = [WaitingClaim(store, worker=f"worker-{number}") for number in range(4)]
    for claimer in claimers:
        await claimer.assert_waiting()
    await insert_one(store)
    responses = [asyncio.create_task(claimer.answer()) for claimer in claimers]
    done, _ = await asyncio.wait(responses, return_when=asyncio.FIRST_COMPLETED, timeout=TIMEOUT_SECONDS)
    assert len(done) == 1
    for claimer in claimers:
        claimer.until.set_result(None)
    assert sum(len(response.leases) for response in await asyncio.gather(*responses)) == 1


async def test_a_freed_slot_is_claimed(store: Store) -> None:
    await configure(store, max_per_group=1)
    lease = await running(store, group="a")
    second = await insert_one(store, group="a")
    claimer = WaitingClaim(store, worker="worker-2")
    await claimer.assert_waiting()
    await settle(store, lease, Done())
    assert [lease.job_id for lease in (await claimer.answer()).leases] == [second]


async def test_limits_apply_to_waiting_claims(store: Store) -> None:
    await configure(store, max_running=1)
    claimers = [WaitingClaim(store, worker=f"worker-{number}") for number in range(2)]
    for claimer in claimers:
        await claimer.assert_waiting()
    await store.insert([new(), new()])
    responses = [asyncio.create_task(claimer.answer()) for claimer in claimers]
    await asyncio.wait(responses, return_when=asyncio.FIRST_COMPLETED, timeout=TIMEOUT_SECONDS)
    for claimer in claimers:
        claimer.until.set_result(None)
    assert sum(len(response.leases) for response in await asyncio.gather(*responses)) == 1


async def test_a_job_that_becomes_due_is_claimed(store: Store, clock: ManualClock) -> None:
    job_id = await insert_one(store, delay_seconds=60)
    claimer = WaitingClaim(store)
    await claimer.assert_waiting()
    clock.advance(60)
    assert [lease.job_id for lease in (await claimer.answer()).leases] == [job_id]


async def test_a_cancel_request_ends_the_wait(store: Store) -> None:
    lease = await running(store)
    claimer = WaitingClaim(store)
    await claimer.assert_waiting()
    await store.change(Action.CANCEL, [lease.job_id], reason="enough")
    assert (await claimer.answer()).cancelled == ((lease.key, "enough"),)
