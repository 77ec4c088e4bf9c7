"""The disk, or a long transaction, blocks every process for longer than a lease."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest
from tests.story.harness import Harness
from tests.story.sizes import size

from jobyard.domain.job import State

pytestmark = [pytest.mark.story, pytest.mark.timeout(300)]

# Renewals of a busy machine may come late.
LEASE_SECONDS = 4.0


async def test_a_write_lock_held_for_longer_than_the_lease_costs_no_live_worker_its_jobs(harness: Harness) -> None:
    await harness.configure()
    busy = await harness.workers(2, lease_seconds=LEASE_SECONDS)
    job_ids = [await harness.enqueue("gate") for _ in range(8)]
    await harness.until(lambda: harness.flags.count("started-") == len(job_ids), "all run")
    idle = await harness.workers(2, lease_seconds=LEASE_SECONDS)
    for _ in range(size(1, 10)):
        connection = sqlite3.connect(harness.database, timeout=30.0, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        await asyncio.sleep(1.5 * LEASE_SECONDS)
        connection.execute("ROLLBACK")
        connection.close()
        await asyncio.sleep(LEASE_SECONDS)
    harness.flags.put("open-all")
    ended = await harness.done(*job_ids)
    await harness.stop([*busy, *idle])
    assert (await harness.verify()).history.reclaimed == 0
    assert {(job.state, job.attempt, job.deaths) for job in ended} == {(State.COMPLETED, 1, 0)}
