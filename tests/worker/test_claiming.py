"""A worker claims for its free slots, in few exchanges, and wakes at once."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.support import PATIENCE_SECONDS, Watched, eventually

from jobyard import Context, Jobyard, State


async def finished(yard: Jobyard, count: int) -> bool:
    return sum(queue.completed for queue in await yard.queues()) == count


async def test_claims_for_free_slots_only(yard: Jobyard, watched: Watched) -> None:
    gates = [asyncio.Event() for _ in range(10)]
    running: set[int] = set()
    most = 0

    @yard.job()
    async def work(ctx: Context, n: int) -> None:
        nonlocal most
        running.add(n)
        most = max(most, len(running))
        await gates[n].wait()
        running.discard(n)

    await yard.enqueue_many(*[work.call(n) for n in range(10)])
    async with yard.worker(concurrency=3):
        await eventually(lambda: running == {0, 1, 2})
        [queue] = await yard.queues()
        assert (queue.running, queue.waiting) == (3, 7)
        gates[1].set()
        await eventually(lambda: running == {0, 2, 3})
        for gate in gates:
            gate.set()
        await eventually(lambda: finished(yard, 10))
    assert most == 3
    assert all(wanted <= 3 and claimed <= wanted for _, wanted, claimed in watched.exchanges)


async def test_settles_and_claims_in_one_trip(yard: Jobyard, watched: Watched) -> None:
    @yard.job()
    async def work(ctx: Context) -> None: ...

    await yard.enqueue_many(*[work.call() for _ in range(50)])
    async with yard.worker(concurrency=1):
        await eventually(lambda: finished(yard, 50))
    together = [exchange for exchange in watched.exchanges if exchange[0] and exchange[2]]
    assert len(together) == 49
    assert watched.calls["exchange"] <= 55


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that is found without a signal is found too late for any test."""
    monkeypatch.setattr("jobyard.worker.claimer.CLAIM_AGAIN_SECONDS", 3600.0)
    monkeypatch.setattr("jobyard.stores._shared.polling_claim.POLL_SECONDS", 3600.0)


async def test_a_new_job_starts_without_polling(yard: Jobyard, no_polling: None) -> None:
    @yard.job()
    async def work(ctx: Context) -> None: ...

    async with yard.worker():
        for _ in range(20):
            await (await work.enqueue()).result(PATIENCE_SECONDS)


async def test_a_delayed_job_starts_when_it_is_due(yard: Jobyard, no_polling: None) -> None:
    @yard.job()
    async def work(ctx: Context) -> float:
        return time.monotonic()

    async with yard.worker():
        before = time.monotonic()
        handle = await work.options(delay=0.3).enqueue()
        assert await handle.result(PATIENCE_SECONDS) - before > 0.29


async def idle_calls(yard: Jobyard, watched: Watched, seconds: float) -> dict[str, float]:
    """Verbs a second, once the worker has come to rest."""
    await eventually(lambda: watched.calls["exchange"] >= 2)
    watched.calls.clear()
    began = time.monotonic()
    await asyncio.sleep(seconds)
    return {verb: count / (time.monotonic() - began) for verb, count in watched.calls.items()}


async def test_idle_costs_next_to_nothing(yard: Jobyard, watched: Watched) -> None:
    async with yard.worker():
        rates = await idle_calls(yard, watched, 3.0)
    assert max(rates.values()) <= 1.4, rates


async def test_jobs_that_may_not_start_cost_next_to_nothing_either(yard: Jobyard, watched: Watched) -> None:
    gate = asyncio.Event()

    @yard.job()
    async def work(ctx: Context) -> None:
        await gate.wait()

    await yard.store.set_paused("paused", None, True)
    await yard.store.set_limit("limited", "serial", 1)
    await work.options(queue="paused").enqueue()
    running = await work.options(queue="limited", group="serial").enqueue()
    await work.options(queue="limited", group="serial").enqueue()
    await work.options(queue="later", delay=100).enqueue()

    async def started() -> bool:
        return (await running.info()).state is State.RUNNING

    async with yard.worker(concurrency=5):
        await eventually(started)
        rates = await idle_calls(yard, watched, 2.0)
        gate.set()
    # The held lease is renewed about once a second; nothing else is added.
    assert max(rates.values()) <= 2.0, rates
