"""Very many delayed jobs become due at one instant while workers hold leases of another queue."""

from __future__ import annotations

import asyncio

import pytest
from tests.story.engines import on_every_store
from tests.story.harness import Harness
from tests.story.sizes import SOAK, size

from jobyard.domain.instant import Instant
from jobyard.domain.job import State

pytestmark = [pytest.mark.story, pytest.mark.timeout(900 if SOAK else 300)]

DUE = size(1_500, 50_000)
CHUNK = 10_000
DELAY_SECONDS = size(2, 20)
HELD = 8
LEASE_SECONDS = 5.0


@on_every_store
async def test_many_jobs_due_at_once_cost_no_live_worker_its_lease(harness: Harness) -> None:
    for queue in ("default", "held"):
        await harness.configure(queue)
    workers = await harness.workers(2, queues=["held"], lease_seconds=LEASE_SECONDS)
    held = [await harness.enqueue("gate", queue="held") for _ in range(HELD)]
    await harness.until(lambda: harness.flags.count("started-") == HELD, "all run")
    due_at: Instant = await harness.yard.store.now() + DELAY_SECONDS * 1000
    for first in range(0, DUE, CHUNK):
        await harness.enqueue_all(
            ("span", {"seconds": 0.0}, {"group": f"g{number % 3}", "run_at": due_at})
            for number in range(first, min(first + CHUNK, DUE))
        )
    workers += await harness.workers(2, queues=["default"], concurrency=50, lease_seconds=15.0)

    async def all_ended() -> bool:
        async with asyncio.timeout(60):  # counts are read while the jobs join the line
            return (await harness.queue()).completed == DUE

    await harness.until(all_ended, "every due job has ended", 600 if SOAK else 60)
    harness.flags.put("open-all")
    ended = await harness.done(*held)
    await harness.stop(workers)
    assert {(job.state, job.attempt, job.deaths) for job in ended} == {(State.COMPLETED, 1, 0)}
    result = await harness.verify()
    assert (result.history.claims, result.history.reclaimed, result.history.refused) == (DUE + HELD, 0, 0)
