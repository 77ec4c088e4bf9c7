"""A handler that blocks the event loop for longer than the lease is not taken for dead."""

from __future__ import annotations

import pytest
from tests.story.harness import Harness
from tests.story.sizes import LEASE_SECONDS

from jobyard.domain.job import State

pytestmark = [pytest.mark.story, pytest.mark.timeout(120)]


@pytest.mark.parametrize("kind", ["block", "spin"])
async def test_a_blocked_loop_keeps_its_lease(harness: Harness, kind: str) -> None:
    await harness.configure()
    [blocked] = await harness.workers(1)
    job_id = await harness.enqueue(kind, {"seconds": 2 * LEASE_SECONDS})
    # The other one would run it as soon as the lease ran out.
    workers = await harness.workers(1)
    [job] = await harness.done(job_id)
    assert (job.state, job.attempt, job.deaths, job.worker) == (State.COMPLETED, 1, 0, blocked.name)
    await harness.stop([blocked, *workers])
    history = (await harness.verify()).history
    assert (history.claims, history.refused, history.reclaimed) == (1, 0, 0)
