"""The server is killed and comes back, again and again, under load."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.servers import Server
from tests.story.faults.load import (
    Memory,
    configure,
    disconnected,
    doctor,
    drained,
    feed_until,
    progress,
    verify,
)
from tests.story.harness import Harness
from tests.story.sizes import SOAK, size

pytestmark = [pytest.mark.story, pytest.mark.timeout(1200 if SOAK else 180)]

ROUNDS = size(2, 12)
JOBS_BETWEEN = size(80, 400)
JOBS_AHEAD = size(200, 1000)
WORKERS = 3


async def test_the_server_is_killed_every_few_seconds(
    harness: Harness, server: Server, endpoint: Server, url: str
) -> None:
    await configure(harness)
    workers = await harness.workers(WORKERS)
    memory = Memory(workers)
    stop_feeding = asyncio.Event()
    feeding = asyncio.create_task(feed_until(harness, stop_feeding, JOBS_AHEAD))
    chance = random.Random(harness.title)
    await progress(harness, feeding, JOBS_BETWEEN // 4)
    for _ in range(ROUNDS):
        server.kill()
        if not harness.returns:
            diagnosis = await doctor(url)
            assert diagnosis.exit_code == 1
            assert diagnosis.failures
        await asyncio.sleep(chance.uniform(0.1, 1.0))
        server.start()
        harness.store_is_back()
        await progress(harness, feeding, JOBS_BETWEEN)
    stop_feeding.set()
    acknowledged = await feeding
    await drained(harness)
    memory.check(workers)
    await harness.stop(workers)
    await disconnected(harness, endpoint)
    await verify(harness, acknowledged)


async def test_the_server_stands_still_for_longer_than_a_lease(harness: Harness, server: Server, url: str) -> None:
    await configure(harness)
    workers = await harness.workers(WORKERS)
    stop_feeding = asyncio.Event()
    feeding = asyncio.create_task(feed_until(harness, stop_feeding, JOBS_AHEAD))
    chance = random.Random(harness.title)
    await progress(harness, feeding, JOBS_BETWEEN // 4)
    for _ in range(size(1, 5)):
        server.pause()
        diagnosis = await doctor(url)
        await asyncio.sleep(size(0.5, chance.uniform(0.0, 8.0)))
        server.resume()
        harness.store_is_back()
        assert diagnosis.exit_code == 1
        assert diagnosis.failures
        await progress(harness, feeding, JOBS_BETWEEN // 4)
    stop_feeding.set()
    acknowledged = await feeding
    await drained(harness)
    await harness.stop(workers)
    await verify(harness, acknowledged)
