"""Many processes race for the same jobs, and for groups that take one job at a time."""

from __future__ import annotations

import pytest
from tests.story.engines import on_every_store
from tests.story.harness import Harness
from tests.story.overlap import most_at_once, who_ran
from tests.story.sizes import SOAK, size

from jobyard.domain.job import State

pytestmark = [pytest.mark.story, pytest.mark.timeout(900 if SOAK else 300)]

PROCESSES = size(6, 32)
GROUPS = size(20, 40)
JOBS_PER_GROUP = size(15, 100)
RACERS = size(8, 16)
PRIZES = size(2_000, 10_000)


@on_every_store
async def test_many_processes_take_each_job_once(harness: Harness) -> None:
    await harness.configure()
    parent = await harness.start_pool("worker", RACERS)
    job_ids = await harness.enqueue_all(("span", {"seconds": 0.0}, {}) for _ in range(PRIZES))
    await harness.drained(600 if SOAK else 60)
    await harness.stop([parent])

    jobs = await harness.all_jobs()
    assert {job.id for job in jobs} == set(job_ids)
    assert {(job.state, job.attempt, job.deaths) for job in jobs} == {(State.COMPLETED, 1, 0)}
    assert len(who_ran(jobs)) > size(1, RACERS // 2), "few processes did everything: that was no race"
    result = await harness.verify()
    assert result.history.claims == PRIZES
    assert result.history.refused == 0


@on_every_store
async def test_serial_groups_stay_serial(harness: Harness) -> None:
    await harness.configure(max_per_group=1)
    # With this many processes on few cores a renewal may come late; the race is the subject here, not the lease.
    workers = await harness.workers(PROCESSES, concurrency=4, lease_seconds=15.0)
    job_ids = await harness.enqueue_all(
        ("span", {"seconds": 0.002}, {"group": f"group-{number % GROUPS}"}) for number in range(GROUPS * JOBS_PER_GROUP)
    )
    await harness.drained(600 if SOAK else 60)
    await harness.stop(workers)

    jobs = await harness.all_jobs()
    assert {job.id for job in jobs} == set(job_ids)
    assert {(job.state, job.attempt, job.deaths) for job in jobs} == {(State.COMPLETED, 1, 0)}
    for number in range(GROUPS):
        assert most_at_once(job for job in jobs if job.group == f"group-{number}") == 1
    assert len(who_ran(jobs)) > 1, "one process did everything: that was no race"
    result = await harness.verify()
    assert result.history.claims == len(job_ids)
    assert result.history.refused == 0
