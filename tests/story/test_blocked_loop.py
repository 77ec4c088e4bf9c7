"""A handler that blocks the event loop for longer than the lease is not taken for dead."""

from __future__ import annotations

import pytest
from tests.story.harness import Harness

from jobyard.domain.job import State

pytestmark = [pytest.mark.story, pytest.mark.timeout(300)]

# Renewals of a busy machine may come late.
LEASE_SECONDS = 4.0


@pytest.mark.parametrize("kind", ["block", "spin"])
async def test_a_blocked_loop_keeps_its_lease(harness: Harness, kind: str) -> None:
    await harness.configure()
    [blocked] = await harness.workers(1, lease_seconds=LEASE_SECONDS)
    job_id = await harness.enqueue(kind, {"seconds": 1.5 * LEASE_SECONDS})
    # The other one would run it as soon as the lease ran out.
    workers = await harness.workers(1, lease_seconds=LEASE_SECONDS)
    [job] = await harness.done(job_id)
    assert (job.state, job.attempt, job.deaths, job.worker) == (State.COMPLETED, 1, 0, blocked.name)
    await harness.stop([blocked, *workers])
    history = (await harness.verify()).history
    assert (history.claims, history.refused, history.reclaimed) == (1, 0, 0)
