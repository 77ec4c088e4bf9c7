"""The server is killed and comes back, again and again, under load."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.servers import Server
from tests.story.faults.load import (
    Memory,
    configure,
    doctor,
    drained,
    feed,
    is_work_left,
    progress,
    verify,
)
from tests.story.harness import Harness
from tests.story.sizes import SOAK, size

pytestmark = [pytest.mark.story, pytest.mark.timeout(1200 if SOAK else 180)]

JOBS = size(360, 5000)
JOBS_BETWEEN = size(80, 400)
WORKERS = 3


async def test_the_server_is_killed_every_few_seconds(
    harness: Harness, server: Server, endpoint: Server, url: str
) -> None:
    await configure(harness)
    before = endpoint.connections()
    workers = await harness.workers(WORKERS)
    memory = Memory(workers)
    feeding = asyncio.create_task(feed(harness, JOBS))
    chance = random.Random(harness.title)
    await progress(harness, feeding, JOBS_BETWEEN // 4)
    while not feeding.done() or await is_work_left(harness):
        server.kill()
        if not harness.returns:
            diagnosis = await doctor(url)
            assert diagnosis.exit_code == 1
            assert diagnosis.failures
        await asyncio.sleep(chance.uniform(0.1, 1.0))
        server.start()
        harness.store_is_back()
        await progress(harness, feeding, JOBS_BETWEEN)
    acknowledged = await feeding
    await drained(harness)
    memory.check(workers)
    await harness.stop(workers)
    assert len(harness.returns) >= 2
    assert endpoint.connections() <= before + 2  # the pool of this process may have grown to its bound
    await verify(harness, acknowledged)


async def test_the_server_stands_still_for_longer_than_a_lease(harness: Harness, server: Server, url: str) -> None:
    await configure(harness)
    workers = await harness.workers(WORKERS)
    feeding = asyncio.create_task(feed(harness, JOBS))
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
    acknowledged = await feeding
    await drained(harness)
    await harness.stop(workers)
    await verify(harness, acknowledged)
