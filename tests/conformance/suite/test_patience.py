"""An exchange that waits for something to claim."""

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
    insert_one,
    new,
    running,
    seen,
    settle,
)

from jobyard.domain.job import State
from jobyard.domain.outcome import Done
from jobyard.ports.admin_store import Action
from jobyard.ports.job_store import Exchange
from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock

PATIENCE_SECONDS = 20.0


class Patient:
    """A worker whose claim waits; when an answer has nothing for it, it asks again, as the real one does."""

    def __init__(self, store: Store, wanted: int = 1, worker: str = WORKER) -> None:
        self._ask: Callable[[], asyncio.Task[Exchange]] = lambda: asyncio.create_task(
            store.exchange(worker, [], ["default"], wanted, LEASE_SECONDS, self.until)
        )
        self.until: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.task = self._ask()

    async def answer(self) -> Exchange:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                answer = await self.task
                if answer.leases or answer.cancelled or self.until.done():
                    return answer
                self.task = self._ask()

    async def asleep(self) -> None:
        """Asked the store, which had nothing to say."""
        done, _ = await asyncio.wait([self.task], timeout=0.05)
        assert not done


async def test_what_arrives_is_claimed(store: Store) -> None:
    patient = Patient(store)
    await patient.asleep()
    job_id = await insert_one(store)
    [lease] = (await patient.answer()).leases
    assert lease.job_id == job_id
    assert (await seen(store, job_id)).state is State.RUNNING
    await settle(store, lease, Done())


async def test_what_is_there_is_claimed_at_once(store: Store) -> None:
    await store.insert([new() for _ in range(3)])
    assert len((await Patient(store, wanted=2).answer()).leases) == 2


async def test_no_more_than_wanted(store: Store) -> None:
    patient = Patient(store, wanted=2)
    await patient.asleep()
    await store.insert([new() for _ in range(3)])
    assert 1 <= len((await patient.answer()).leases) <= 2
    assert len(await claim(store, 3)) >= 1


async def test_an_end_to_patience(store: Store) -> None:
    patient = Patient(store)
    await patient.asleep()
    patient.until.set_result(None)
    answer = await patient.answer()
    assert answer.leases == ()
    job_id = await insert_one(store)
    assert (await claim_one(store)).job_id == job_id


async def test_patience_that_was_over_before(store: Store) -> None:
    patient = Patient(store)
    patient.until.set_result(None)
    assert (await patient.answer()).leases == ()


async def test_a_caller_that_goes_away_claims_nothing(store: Store) -> None:
    patient = Patient(store)
    await patient.asleep()
    patient.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await patient.task
    job_id = await insert_one(store)
    assert (await claim_one(store)).job_id == job_id


async def test_one_job_goes_to_one_of_many(store: Store) -> None:
    patients = [Patient(store, worker=f"worker-{number}") for number in range(4)]
    for patient in patients:
        await patient.asleep()
    await insert_one(store)
    answers = [asyncio.create_task(patient.answer()) for patient in patients]
    done, _ = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE_SECONDS)
    assert len(done) == 1
    for patient in patients:
        patient.until.set_result(None)
    assert sum(len(answer.leases) for answer in await asyncio.gather(*answers)) == 1


async def test_a_freed_slot_is_taken(store: Store) -> None:
    await configure(store, max_per_group=1)
    lease = await running(store, group="a")
    second = await insert_one(store, group="a")
    patient = Patient(store, worker="worker-2")
    await patient.asleep()
    await settle(store, lease, Done())
    assert [lease.job_id for lease in (await patient.answer()).leases] == [second]


async def test_a_limit_holds_for_the_patient(store: Store) -> None:
    await configure(store, max_running=1)
    patients = [Patient(store, worker=f"worker-{number}") for number in range(2)]
    for patient in patients:
        await patient.asleep()
    await store.insert([new(), new()])
    answers = [asyncio.create_task(patient.answer()) for patient in patients]
    await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE_SECONDS)
    for patient in patients:
        patient.until.set_result(None)
    assert sum(len(answer.leases) for answer in await asyncio.gather(*answers)) == 1


async def test_a_job_that_becomes_due_is_claimed(store: Store, clock: ManualClock) -> None:
    job_id = await insert_one(store, delay_seconds=60)
    patient = Patient(store)
    await patient.asleep()
    clock.advance(60)
    assert [lease.job_id for lease in (await patient.answer()).leases] == [job_id]


async def test_a_wish_to_stop_a_job_is_told(store: Store) -> None:
    lease = await running(store)
    patient = Patient(store)
    await patient.asleep()
    await store.change(Action.CANCEL, [lease.job_id], reason="enough")
    assert (await patient.answer()).cancelled == ((lease.key, "enough"),)
