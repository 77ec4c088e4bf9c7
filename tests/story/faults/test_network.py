"""The way to the server is cut, blocked, stalled or forgotten, under load."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.servers import Proxy, Server
from tests.servers.proxy import Mode
from tests.story.faults.load import Memory, configure, disconnected, doctor, drained, feed, feed_until, progress, verify
from tests.story.harness import Harness
from tests.story.sizes import LEASE_SECONDS, SOAK, size

from jobyard.domain.job import State

pytestmark = [pytest.mark.story, pytest.mark.timeout(1800 if SOAK else 240)]

FAULTS = ("cut", "refused", "stalled", "half-open", "forgotten")
ROUNDS = size(1, 5)
JOBS_BETWEEN = 40
WORKERS = 3


@contextmanager
def trouble(proxy: Proxy, fault: str) -> Iterator[None]:
    match fault:
        case "cut":
            proxy.cut()
            yield
        case "refused":
            proxy.mode = Mode.REFUSE
            proxy.cut()
            yield
        case "stalled":
            proxy.mode = Mode.STALL
            yield
        case "half-open":
            proxy.mode = Mode.HALF_OPEN
            yield
            # Neither side is notified, and data in flight is lost.
            proxy.abandon()
        case "forgotten":
            proxy.abandon()
            yield
    proxy.mode = Mode.PASS


@pytest.mark.parametrize("fault", FAULTS)
async def test_the_connection_is(harness: Harness, endpoint: Server, proxy: Proxy, fault: str) -> None:
    await configure(harness)
    workers = await harness.workers(WORKERS)
    memory = Memory(workers)
    stop_feeding = asyncio.Event()
    feeding = asyncio.create_task(feed_until(harness, stop_feeding))
    await progress(harness, feeding, JOBS_BETWEEN)
    for _ in range(ROUNDS):
        with trouble(proxy, fault):
            # Long enough for every lease to run out.
            enough = asyncio.create_task(asyncio.sleep(2 * LEASE_SECONDS if fault != "cut" else 0.1))
            if fault in {"refused", "stalled", "half-open"}:
                diagnosis = await doctor(harness.url)
                assert diagnosis.exit_code == 1, diagnosis
                assert diagnosis.failures
            await enough
        harness.store_is_back()
        await progress(harness, feeding, JOBS_BETWEEN)
    stop_feeding.set()
    acknowledged = await feeding
    await drained(harness)
    memory.check(workers)
    await harness.stop(workers)
    proxy.cut()  # those that were abandoned are not the store's to close

    await disconnected(harness, endpoint)
    await verify(harness, acknowledged)


async def test_each_round_trip_takes_longer(harness: Harness, proxy: Proxy) -> None:
    """A far server is slower, and nothing else."""
    await configure(harness)
    proxy.latency_seconds = 0.05
    workers = await harness.workers(2, lease_seconds=60.0)
    job_ids = await feed(harness, 100)
    ended = await harness.done(*job_ids)
    await harness.stop(workers)
    assert {(job.state, job.attempt, job.deaths) for job in ended} == {(State.COMPLETED, 1, 0)}
    await harness.verify()
