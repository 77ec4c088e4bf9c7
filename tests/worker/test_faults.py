"""Faults at awkward moments: a stop or a blocked loop while a claim is on its way, an observer that raises."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support import Events, eventually

from jobyard import Context, Jobyard, State
from jobyard.domain.events import Event
from jobyard.domain.state import Settlement
from jobyard.errors import NotPossible
from jobyard.ports.job_store import Exchange
from jobyard.stores.sqlite import SqliteStore


class SlowAnswers(SqliteStore):
    """The claim has happened; its answer takes its time."""

    gate: asyncio.Event | None = None
    claimed: asyncio.Event | None = None

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._fast_exchange, self.exchange = self.exchange, self._slow_exchange

    async def _slow_exchange(
        self,
        worker: str,
        settlements: Sequence[Settlement],
        queues: Sequence[str],
        wanted: int,
        lease_seconds: float,
        until: asyncio.Future[None] | None = None,
    ) -> Exchange:
        response = await self._fast_exchange(worker, settlements, queues, wanted, lease_seconds, until)
        if response.leases and self.gate is not None and self.claimed is not None:
            self.claimed.set()
            await self.gate.wait()
        return response


async def test_a_claim_on_its_way_when_the_worker_stops_goes_back(tmp_path: Path) -> None:
    store = SlowAnswers(tmp_path / "jobs.db")
    yard = Jobyard(store=store)
    started = False

    @yard.job()
    async def work(ctx: Context) -> None:
        nonlocal started
        started = True
        await asyncio.sleep(60)

    async with yard:
        store.gate, store.claimed = asyncio.Event(), asyncio.Event()
        handle = await work.enqueue()
        worker = yard.worker()
        await worker.start()
        await store.claimed.wait()
        stopping = asyncio.create_task(worker.stop(0))
        await asyncio.sleep(0)
        store.gate.set()
        await asyncio.wait_for(stopping, 60)
        job = await handle.info()
        assert not started
        assert (job.state, job.attempt, job.deaths) == (State.PENDING, 0, 0)


async def test_leases_whose_response_is_in_flight_are_renewed(tmp_path: Path) -> None:
    """The worker does not know of them yet, and still they must not expire."""
    store = SlowAnswers(tmp_path / "jobs.db")
    yard = Jobyard(store=store)
    runs = 0

    @yard.job()
    async def work(ctx: Context) -> None:
        nonlocal runs
        runs += 1

    async with yard:
        store.gate, store.claimed = asyncio.Event(), asyncio.Event()
        handle = await work.enqueue()
        async with yard.worker(lease=0.6):
            await store.claimed.wait()
            began = time.monotonic()
            await eventually(lambda: time.monotonic() - began > 2.0)
            store.gate.set()
            await handle.result(60)
        job = await handle.info()
        assert (runs, job.deaths, job.state) == (1, 0, State.COMPLETED)


async def test_a_run_stopped_before_its_first_step_is_handed_back_at_once(yard: Jobyard) -> None:
    @yard.job()
    async def work(ctx: Context) -> None:
        await asyncio.sleep(60)

    handle = await work.enqueue()
    # It takes another queue, so that this claim is made here, and its run begun in the same step as the stop.
    worker = yard.worker(queues=["another"])
    await worker.start()
    [lease] = (await yard.store.exchange(worker.id, [], ["default"], 1, 15)).leases
    worker.claimer.start([lease])
    [attempt] = worker.claimer.attempts.values()
    attempt.release()
    assert not worker.claimer.attempts
    await worker.stop(0)
    assert (await handle.info()).state is State.PENDING


class Grumpy(Events):
    """An observer that always raises."""

    def observe(self, event: Event) -> None:
        super().observe(event)
        raise RuntimeError("I do not like this event")


async def test_an_observer_that_raises_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    yard = Jobyard(f"sqlite:///{tmp_path / 'jobs.db'}", observer=Grumpy())

    @yard.job()
    async def work(ctx: Context, n: int) -> int:
        return n

    async with yard, yard.worker():
        handles: list[Any] = await yard.enqueue_many(*[work.call(n) for n in range(5)])
        assert [await handle.result(60) for handle in handles] == [0, 1, 2, 3, 4]
    assert "an observer failed" in caplog.text


async def test_a_stopped_worker_is_not_started_again(yard: Jobyard) -> None:
    worker = yard.worker()
    async with worker:
        pass
    with pytest.raises(NotPossible):
        await worker.start()
