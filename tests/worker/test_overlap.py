"""Large exchanges overlap on a remote store; small ones and those of other stores do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from tests.support import Events, eventually

from jobyard import Context, Jobyard
from jobyard.config.store_factory import make_store
from jobyard.domain import events as e
from jobyard.errors import StoreUnavailable
from jobyard.ports.admin_store import QueueInfo
from jobyard.ports.job_store import Exchange
from jobyard.ports.store import Store


class SlowStore:
    """A store whose exchanges take a while, and that counts how many are in flight."""

    def __init__(self, store: Store, *, is_remote: bool) -> None:
        self._store = store
        self.is_remote = is_remote
        self.in_flight = self.most = 0
        self.waiting = 0  # claims that were left to wait
        self.wanted: list[int] = []
        self.failing = 0  # how many exchanges fail from now on
        self.gate = asyncio.Event()
        self.gate.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def exchange(
        self, worker: str, settlements: Any, queues: Any, wanted: int, lease_seconds: float, until: Any = None
    ) -> Exchange:
        if until is not None:
            self.waiting += 1
            return await self._store.exchange(worker, settlements, queues, wanted, lease_seconds, until)
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        self.wanted.append(wanted)
        try:
            await asyncio.sleep(0.002)
            await self.gate.wait()
            if self.failing:
                self.failing -= 1
                raise StoreUnavailable("gone for a moment")
            return await self._store.exchange(worker, settlements, queues, wanted, lease_seconds)
        finally:
            self.in_flight -= 1


@pytest.fixture
def slow() -> SlowStore:
    return SlowStore(make_store("memory://"), is_remote=True)


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
async def yard(slow: SlowStore, events: Events) -> AsyncIterator[Jobyard]:
    async with Jobyard(store=cast(Store, slow), observer=events) as yard:
        yield yard
        assert await yard.store.audit() == []


class Handlers:
    """How many run at once."""

    def __init__(self, yard: Jobyard) -> None:
        self.now = self.most = self.ran = 0

        @yard.job()
        async def work(ctx: Context) -> None:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0)
            self.now -= 1
            self.ran += 1

        self.work = work


async def settled(yard: Jobyard) -> list[QueueInfo]:
    async def is_empty() -> bool:
        return not any(queue.waiting or queue.running for queue in await yard.queues())

    await eventually(is_empty)
    return await yard.queues()


async def test_two_large_exchanges_overlap(yard: Jobyard, slow: SlowStore, events: Events) -> None:
    handlers = Handlers(yard)
    yard.queue("default", keep_completed=10_000)
    await yard.enqueue_many(*[handlers.work.call() for _ in range(3000)])
    async with yard.worker(concurrency=200):
        [queue] = await settled(yard)
    assert (handlers.ran, queue.completed) == (3000, 3000)
    assert handlers.most <= 200
    assert slow.most == 2
    assert max(slow.wanted) == 100
    assert events.of(e.SettlementRefused) == []


@pytest.mark.parametrize(("is_remote", "concurrency"), [(False, 200), (True, 99)])
async def test_otherwise_one_at_a_time(yard: Jobyard, slow: SlowStore, is_remote: bool, concurrency: int) -> None:
    slow.is_remote = is_remote
    handlers = Handlers(yard)
    await yard.enqueue_many(*[handlers.work.call() for _ in range(1000)])
    async with yard.worker(concurrency=concurrency):
        await settled(yard)
    assert handlers.ran == 1000
    assert slow.most == 1


async def test_nothing_is_lost_when_both_fail(yard: Jobyard, slow: SlowStore, events: Events) -> None:
    handlers = Handlers(yard)
    yard.queue("default", keep_completed=10_000)
    await yard.enqueue_many(*[handlers.work.call() for _ in range(2000)])
    async with yard.worker(concurrency=200):
        await eventually(lambda: slow.most == 2)
        slow.gate.clear()
        await eventually(lambda: slow.in_flight == 2)
        slow.failing = 4
        slow.gate.set()
        [queue] = await settled(yard)
    assert (handlers.ran, queue.completed) == (2000, 2000)
    assert len(events.of(e.StoreFailed)) == 4
    assert events.of(e.SettlementRefused) == []


async def test_stopping_waits_for_both_and_hands_back_what_they_bring(yard: Jobyard, slow: SlowStore) -> None:
    handlers = Handlers(yard)
    yard.queue("default", keep_completed=10_000)
    await yard.enqueue_many(*[handlers.work.call() for _ in range(2000)])
    worker = yard.worker(concurrency=200)
    await worker.start()
    await eventually(lambda: slow.most == 2)
    slow.gate.clear()
    await eventually(lambda: slow.in_flight == 2)
    stopping = asyncio.create_task(worker.stop())
    await asyncio.sleep(0)
    slow.gate.set()
    await stopping
    [queue] = await yard.queues()
    assert (queue.running, queue.completed, queue.completed + queue.waiting) == (0, handlers.ran, 2000)


@pytest.mark.parametrize("concurrency", [200, 1000, 1200, 5000])
async def test_an_idle_worker_rests(
    yard: Jobyard, slow: SlowStore, concurrency: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobyard.worker.claimer.CLAIM_AGAIN_SECONDS", 3600.0)
    async with yard.worker(concurrency=concurrency):
        await eventually(lambda: slow.waiting == 1)
        asked = len(slow.wanted)
        await asyncio.sleep(0.3)
        assert (slow.waiting, len(slow.wanted)) == (1, asked)
        assert asked <= 3


async def test_one_exchange_at_a_time_while_the_store_is_unavailable(
    yard: Jobyard, slow: SlowStore, events: Events
) -> None:
    """Two would alternate, and a worker that is stopping would never end."""
    handlers = Handlers(yard)
    await yard.enqueue_many(*[handlers.work.call() for _ in range(2000)])
    worker = yard.worker(concurrency=200)
    await worker.start()
    await eventually(lambda: slow.most == 2)
    slow.failing = 1_000_000
    await eventually(lambda: len(events.of(e.StoreFailed)) >= 2)
    slow.most = slow.in_flight
    await eventually(lambda: slow.in_flight == 0)
    slow.most = 0
    await eventually(lambda: len(events.of(e.StoreFailed)) >= 6)
    assert slow.most == 1
    slow.failing = 0
    await worker.stop()
