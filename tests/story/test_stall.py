"""The disk, or somebody's long transaction, holds everybody up for longer than a lease."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest
from tests.story.scene import Scene
from tests.story.sizes import LEASE_SECONDS, size

from jobyard.domain.job import State

pytestmark = [pytest.mark.story, pytest.mark.timeout(120)]


async def test_a_write_lock_held_for_longer_than_the_lease_costs_no_live_worker_its_jobs(scene: Scene) -> None:
    await scene.configure()
    busy = await scene.workers(2)
    job_ids = [await scene.enqueue("gate") for _ in range(8)]
    await scene.until(lambda: scene.marks.count("started-") == len(job_ids), "all run")
    idle = await scene.workers(2)
    for _ in range(size(2, 10)):
        connection = sqlite3.connect(scene.database, timeout=30.0, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        await asyncio.sleep(2 * LEASE_SECONDS)
        connection.execute("ROLLBACK")
        connection.close()
        await asyncio.sleep(LEASE_SECONDS)
    scene.marks.put("open-all")
    ended = await scene.done(*job_ids)
    await scene.stop([*busy, *idle])
    assert (await scene.judge()).history.reclaimed == 0
    assert {(job.state, job.attempt, job.deaths) for job in ended} == {(State.COMPLETED, 1, 0)}
