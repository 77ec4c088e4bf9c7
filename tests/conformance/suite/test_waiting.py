"""Waiting for work and for the end of a job: waiters are woken by the change itself, not by a timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.conformance.support import (
    LEASE_SECONDS,
    claim,
    claim_one,
    configure,
    decide_one,
    get_job,
    insert_one,
    new,
    running,
    settle,
)

from jobyard.domain.job import State
from jobyard.domain.outcome import Done, Park, Release
from jobyard.errors import JobNotFound
from jobyard.ports.admin_store import Action
from jobyard.ports.store import Store
from jobyard.testing.clock import ManualClock

LONG_SECONDS = 100.0
SHORT_SECONDS = 0.02


async def woken(store: Store, by: Callable[[], Awaitable[object]], *queues: str) -> bool:
    """Return whether the change wakes a waiter that found no work."""
    assert not await store.wait_for_work(queues or ("default",), 0)
    waiting = asyncio.create_task(store.wait_for_work(queues or ("default",), LONG_SECONDS))
    await asyncio.sleep(0)  # lets the waiter start
    await by()
    # A waiter that times out also finds the work at its last check, so only half the time is allowed.
    return await asyncio.wait_for(waiting, LONG_SECONDS / 2)


async def test_wait_for_work_times_out(store: Store) -> None:
    assert await store.wait_for_work(["default"], SHORT_SECONDS) is False


async def test_available_work_is_reported_at_once(store: Store) -> None:
    await insert_one(store)
    assert await store.wait_for_work(["default"], LONG_SECONDS) is True


async def test_an_insert_wakes(store: Store) -> None:
    assert await woken(store, lambda: insert_one(store))


async def test_any_of_the_queues_wakes(store: Store) -> None:
    assert await woken(store, lambda: insert_one(store, queue="two"), "one", "two")


async def test_a_freed_slot_wakes(store: Store) -> None:
    await configure(store, max_running=1)
    lease = await running(store)
    await insert_one(store)
    assert await woken(store, lambda: settle(store, lease, Done()))


async def test_a_released_job_wakes(store: Store) -> None:
    lease = await running(store)
    assert await woken(store, lambda: settle(store, lease, Release()))


async def test_a_lost_lease_wakes(store: Store, clock: ManualClock) -> None:
    await running(store)
    clock.advance(LEASE_SECONDS)
    assert await woken(store, store.reclaim)


async def test_a_signal_wakes(store: Store) -> None:
    lease = await running(store)
    await settle(store, lease, Park("go"))
    assert await woken(store, lambda: store.signal(lease.job_id, "go"))


async def test_a_resumed_queue_wakes(store: Store) -> None:
    await insert_one(store, group="a")
    await store.set_paused("default", None, True)
    assert await woken(store, lambda: store.set_paused("default", None, False))


async def test_a_resumed_group_wakes(store: Store) -> None:
    await insert_one(store, group="a")
    await store.set_paused("default", "a", True)
    assert await woken(store, lambda: store.set_paused("default", "a", False))


async def test_a_raised_limit_wakes(store: Store) -> None:
    await insert_one(store, group="a")
    await store.set_limit("default", "a", 0)
    assert await woken(store, lambda: store.set_limit("default", "a", 1))


async def test_other_settings_wake(store: Store) -> None:
    await configure(store, max_running=0)
    await insert_one(store)
    assert await woken(store, lambda: configure(store))


async def test_a_retry_wakes(store: Store) -> None:
    job_id = await insert_one(store)
    await store.change(Action.CANCEL, [job_id])
    assert await woken(store, lambda: store.change(Action.RETRY, [job_id]))


async def test_a_cancel_wakes(store: Store) -> None:
    lease = await running(store)
    assert await woken(store, lambda: store.change(Action.CANCEL, [lease.job_id]))


async def test_a_tick_wakes(store: Store, clock: ManualClock) -> None:
    await store.arm("nightly", 1, since=0)
    assert await woken(store, lambda: decide_one(store, clock.now()))


async def test_a_tick_with_a_delayed_job_wakes_when_it_is_due(store: Store, clock: ManualClock) -> None:
    await store.arm("nightly", 1, since=0)

    async def decide_then_turn() -> None:
        await decide_one(store, clock.now(), new(run_at=clock.now() + 100))
        clock.advance(0.1)

    assert await woken(store, decide_then_turn)


async def test_a_job_that_becomes_due_wakes(store: Store, clock: ManualClock) -> None:
    await insert_one(store, delay_seconds=0.1)

    async def turn_the_clock() -> None:
        clock.advance(0.1)

    assert await woken(store, turn_the_clock)
    assert len(await claim(store)) == 1


async def test_a_delayed_job_inserted_meanwhile_wakes_when_due(store: Store, clock: ManualClock) -> None:
    async def insert_then_turn() -> None:
        await insert_one(store, delay_seconds=0.1)
        clock.advance(0.1)

    assert await woken(store, insert_then_turn)


async def test_all_waiters_are_woken(store: Store) -> None:
    sleepers = [asyncio.create_task(store.wait_for_work(["default"], LONG_SECONDS)) for _ in range(5)]
    await asyncio.sleep(0)
    await store.insert([new() for _ in range(5)])
    assert await asyncio.gather(*sleepers) == [True] * 5


async def test_a_cancelled_waiter_does_not_affect_others(store: Store) -> None:
    sleeper = asyncio.create_task(store.wait_for_work(["default"], LONG_SECONDS))
    await asyncio.sleep(0)
    sleeper.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeper
    await insert_one(store)
    assert await store.wait_for_work(["default"], LONG_SECONDS) is True


async def test_wait_for_end_returns_the_final_job(store: Store) -> None:
    lease = await running(store)
    waiting = asyncio.create_task(store.wait_for_end(lease.job_id, LONG_SECONDS))
    await asyncio.sleep(0)
    await settle(store, lease, Done(b"42"))
    assert await waiting == await get_job(store, lease.job_id)
    assert await store.wait_for_end(lease.job_id, 0) == await get_job(store, lease.job_id)


async def test_wait_for_end_returns_a_cancelled_job(store: Store) -> None:
    job_id = await insert_one(store)
    waiting = asyncio.create_task(store.wait_for_end(job_id, LONG_SECONDS))
    await asyncio.sleep(0)
    await store.change(Action.CANCEL, [job_id])
    job = await waiting
    assert job is not None
    assert job.state is State.CANCELLED


async def test_a_retry_does_not_end_the_wait(store: Store) -> None:
    lease = await running(store)
    waiting = asyncio.create_task(store.wait_for_end(lease.job_id, LONG_SECONDS))
    await asyncio.sleep(0)
    await settle(store, lease, Release())
    await settle(store, await claim_one(store), Done())
    job = await waiting
    assert job is not None
    assert job.state is State.COMPLETED


async def test_wait_for_end_times_out(store: Store) -> None:
    job_id = await insert_one(store)
    assert await store.wait_for_end(job_id, SHORT_SECONDS) is None
    assert await store.wait_for_end(job_id, 0) is None


async def test_wait_for_the_end_of_an_unknown_job(store: Store) -> None:
    with pytest.raises(JobNotFound):
        await store.wait_for_end(new().id, LONG_SECONDS)


async def test_wait_for_the_end_of_a_deleted_job(store: Store) -> None:
    job_id = await insert_one(store)
    waiting = asyncio.create_task(store.wait_for_end(job_id, LONG_SECONDS))
    await asyncio.sleep(0)
    await store.change(Action.DELETE, [job_id])
    with pytest.raises(JobNotFound):
        await waiting
