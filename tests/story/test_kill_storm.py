"""Workers die all the time: nothing is lost, nothing counts twice, no limit is exceeded."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.story.engines import on_every_store
from tests.story.harness import Harness
from tests.story.overlap import most_at_once
from tests.story.sizes import LEASE_SECONDS, RECOVERY_SLACK_SECONDS, SOAK, size

from jobyard.domain.job import State
from jobyard.domain.lease import DEFAULT_LEASE_SECONDS, MAX_DEATHS
from jobyard.ports.admin_store import Action

pytestmark = [pytest.mark.story, pytest.mark.timeout(900 if SOAK else 300)]

WORKERS = 4
KILLS = 5  # at least
# Fewer and longer jobs take less of the processor and as long in all, so that as many workers are killed.
JOBS, SPAN_SECONDS = size((500, (0.02, 0.13)), (5000, (0.01, 0.08)))
GROUPS = [f"group-{number}" for number in range(20)]
MAX_RUNNING, MAX_PER_GROUP = 14, 3
SERIAL = GROUPS[0]


@on_every_store
async def test_a_random_worker_is_killed_every_half_second(harness: Harness) -> None:
    await harness.configure(max_running=MAX_RUNNING, max_per_group=MAX_PER_GROUP)
    await harness.yard.set_limit("default", SERIAL, 1)
    chance = random.Random(harness.title)
    await harness.enqueue_all(
        (
            "span",
            {"seconds": chance.uniform(*SPAN_SECONDS)},
            {"group": chance.choice(GROUPS), "priority": chance.choice([0, 0, 5])},
        )
        for _ in range(JOBS)
    )
    workers = await harness.workers(WORKERS)
    while await _work_is_left(harness) or len(harness.kills) < KILLS:
        await asyncio.sleep(0.5)
        # Not one that is still starting, nor all that are up: on a slow machine no worker would ever get to work.
        up = await harness.up(workers)
        if len(up) > WORKERS // 2:
            victim = workers.index(chance.choice(up))
            harness.kill(workers[victim])
            workers[victim] = harness.worker()
    await harness.ready(workers)
    quarantined = await _redrive(harness)
    await harness.drained()
    await harness.stop(workers)

    jobs = await harness.all_jobs()
    assert len(jobs) == JOBS
    assert {job.state for job in jobs} == {State.COMPLETED}
    for group in GROUPS:
        limit = 1 if group == SERIAL else MAX_PER_GROUP
        assert most_at_once(job for job in jobs if job.group == group) <= limit
    assert most_at_once(jobs) <= MAX_RUNNING
    result = await harness.verify()
    assert result.history.reclaimed > 0
    assert max(result.recovery_seconds) <= LEASE_SECONDS + RECOVERY_SLACK_SECONDS
    assert quarantined <= JOBS // 100 or not SOAK  # more on a busy machine, where each job runs for longer


async def _work_is_left(harness: Harness) -> bool:
    return (await harness.queue()).waiting > 0


async def _redrive(harness: Harness) -> int:
    """A job that was hit three times is quarantined, which is right; people may send it on its way again."""
    await harness.drained()
    dead = [job for job in await harness.all_jobs() if job.state is State.FAILED]
    assert all(job.deaths == MAX_DEATHS for job in dead)
    await harness.yard.store.change(Action.RETRY, [job.id for job in dead])
    return len(dead)


@pytest.mark.skipif(not SOAK, reason="a whole default lease must pass; runs in make soak")
async def test_with_the_default_lease_the_jobs_run_elsewhere_within_15_seconds(harness: Harness) -> None:
    await harness.configure()
    [victim] = await harness.workers(1, lease_seconds=DEFAULT_LEASE_SECONDS)
    job_ids = [await harness.enqueue("gate") for _ in range(4)]
    await harness.until(lambda: harness.flags.count("started-") == len(job_ids), "all four run")
    others = await harness.workers(2, lease_seconds=DEFAULT_LEASE_SECONDS)
    harness.kill(victim)
    harness.flags.put("open-all")
    ended = await harness.done(*job_ids)
    assert [(job.state, job.attempt, job.deaths) for job in ended] == [(State.COMPLETED, 1, 1)] * 4
    await harness.stop(others)
    result = await harness.verify()
    assert len(result.recovery_seconds) == len(job_ids)
    assert max(result.recovery_seconds) <= 15.0
