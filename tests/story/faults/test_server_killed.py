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
    judge,
    progress,
)
from tests.story.scene import Scene
from tests.story.sizes import SOAK, size

pytestmark = [pytest.mark.story, pytest.mark.timeout(1200 if SOAK else 180)]

JOBS = size(600, 5000)
JOBS_BETWEEN = size(120, 400)
WORKERS = 3


async def test_the_server_is_killed_every_few_seconds(scene: Scene, server: Server, door: Server, url: str) -> None:
    await configure(scene)
    before = door.connections()
    workers = await scene.workers(WORKERS)
    memory = Memory(workers)
    feeding = asyncio.create_task(feed(scene, JOBS))
    chance = random.Random(scene.title)
    await progress(scene, feeding, JOBS_BETWEEN // 4)
    while not feeding.done() or await is_work_left(scene):
        server.kill()
        if not scene.returns:
            diagnosis = await doctor(url)
            assert diagnosis.exit_code == 1
            assert diagnosis.failures
        await asyncio.sleep(chance.uniform(0.1, 1.0))
        server.start()
        scene.store_is_back()
        await progress(scene, feeding, JOBS_BETWEEN)
    acknowledged = await feeding
    await drained(scene)
    memory.check(workers)
    await scene.stop(workers)
    assert len(scene.returns) >= 2
    assert door.connections() <= before + 2  # the pool of this process may have grown to its bound
    await judge(scene, acknowledged)


async def test_the_server_stands_still_for_longer_than_a_lease(scene: Scene, server: Server, url: str) -> None:
    await configure(scene)
    workers = await scene.workers(WORKERS)
    feeding = asyncio.create_task(feed(scene, JOBS))
    chance = random.Random(scene.title)
    await progress(scene, feeding, JOBS_BETWEEN // 4)
    for _ in range(size(1, 5)):
        server.pause()
        diagnosis = await doctor(url)
        await asyncio.sleep(size(0.5, chance.uniform(0.0, 8.0)))
        server.resume()
        scene.store_is_back()
        assert diagnosis.exit_code == 1
        assert diagnosis.failures
        await progress(scene, feeding, JOBS_BETWEEN // 4)
    acknowledged = await feeding
    await drained(scene)
    await scene.stop(workers)
    await judge(scene, acknowledged)
