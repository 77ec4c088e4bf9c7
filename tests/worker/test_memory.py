"""The memory limit of a worker: what is measured, and what follows from it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from tests.support import Events, eventually

from jobyard import Context, Jobyard
from jobyard.domain.events import WorkerMemoryHigh
from jobyard.domain.job import State
from jobyard.ports.clock import SystemClock
from jobyard.stores.memory import MemoryStore
from jobyard.worker import memory
from jobyard.worker.memory import MemoryMonitor, memory_bytes, process_tree
from jobyard.worker.usage import resident_bytes
from jobyard.worker.worker import Worker

LIMIT = 1000
MEBIBYTE = 1 << 20
HOLD = "import sys; held = bytearray(64 << 20); held[::4096] = b'x' * len(held[::4096]); print(flush=True); input()"


class Scale:
    """Weighs what a test says."""

    def __init__(self) -> None:
        self.used = 0

    def __call__(self, threshold: float) -> int:
        assert threshold == LIMIT * memory.DRAIN_SHARE
        return self.used


class Site:
    def __init__(self) -> None:
        self.yard = Jobyard(store=MemoryStore(SystemClock()))
        self.gate = asyncio.Event()
        self.started = 0
        self.scale = Scale()
        self.events = Events()

        @self.yard.job()
        async def wait(ctx: Context) -> None:
            self.started += 1
            await self.gate.wait()

    def monitored(self) -> tuple[Worker, MemoryMonitor]:
        worker = self.yard.worker(concurrency=2, shutdown_timeout=0.05)
        return worker, MemoryMonitor(worker, LIMIT, self.events.observe, self.scale)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    async with made.yard:
        yield made


async def test_below_the_margin_nothing_happens(site: Site) -> None:
    worker, monitor = site.monitored()
    site.scale.used = 899
    async with worker:
        await monitor.run_once()
        assert not monitor.is_draining
        assert not worker.info().quiet
    assert site.events.of(WorkerMemoryHigh) == []


async def test_near_the_limit_running_jobs_finish_and_no_more_start(site: Site) -> None:
    worker, monitor = site.monitored()
    async with worker:
        first = await site.yard.enqueue("wait")
        await eventually(lambda: site.started == 1)
        site.scale.used = 900
        await monitor.run_once()
        assert monitor.is_draining
        assert worker.info().quiet
        assert site.events.of(WorkerMemoryHigh) == [WorkerMemoryHigh(worker.id, 900, LIMIT, 1)]
        second = await site.yard.enqueue("wait")
        site.scale.used = 100  # it does not turn back
        await monitor.run_once()
        assert not worker.is_stopping
        site.gate.set()
        await first.result(timeout=60)
        await eventually(lambda: not worker.claimer.attempts)
        await monitor.run_once()
        await asyncio.wait_for(worker.stopped(), 60)
    assert (await site.yard.get(second.id)).state is State.PENDING
    assert site.started == 1


async def test_above_the_limit_jobs_are_handed_back_after_the_timeout(site: Site) -> None:
    worker, monitor = site.monitored()
    async with worker:
        job = await site.yard.enqueue("wait")
        await eventually(lambda: site.started == 1)
        site.scale.used = LIMIT
        await asyncio.wait_for(monitor.run_once(), 60)
        await asyncio.wait_for(worker.stopped(), 60)
    after = await site.yard.get(job.id)
    assert (after.state, after.attempt, after.errors) == (State.PENDING, 0, ())
    assert len(site.events.of(WorkerMemoryHigh)) == 1


async def test_an_idle_worker_stops_at_once(site: Site) -> None:
    worker, monitor = site.monitored()
    site.scale.used = 950
    async with worker:
        await monitor.run()
        assert worker.is_stopping


def test_child_processes_are_measured() -> None:
    before = memory_bytes(0)
    with subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in process_tree(os.getpid())
        assert resident_bytes(child.pid) > 64 * MEBIBYTE
        assert memory_bytes(0) - before > 60 * MEBIBYTE
        child.kill()
    assert child.pid not in process_tree(os.getpid())


def test_below_the_threshold_the_cheap_number_is_an_upper_bound() -> None:
    assert memory_bytes(float("inf")) >= memory_bytes(0) > MEBIBYTE


def test_a_process_that_has_ended_uses_no_memory() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert resident_bytes(child.pid) == memory.proportional_bytes(child.pid) == 0
