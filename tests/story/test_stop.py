"""SIGTERM: take no more, finish for a while, hand back the rest; a second one: now."""

from __future__ import annotations

import signal

import pytest
from tests.story.harness import Harness

from jobyard.domain.job import State

pytestmark = [pytest.mark.story, pytest.mark.timeout(300)]


async def test_what_runs_may_finish_and_nothing_new_starts(harness: Harness) -> None:
    await harness.configure()
    [worker] = await harness.workers(1, concurrency=2, shutdown_timeout=60.0)
    running = [await harness.enqueue("gate") for _ in range(2)]
    await harness.until(lambda: harness.flags.count("started-") == 2, "both run")
    waiting = [await harness.enqueue("gate") for _ in range(3)]
    worker.send(signal.SIGTERM)
    await harness.until(lambda: harness.flags.has(f"stopping-{worker.name}"), "the worker stops")
    harness.flags.put("open-all")
    await harness.ended([worker])

    assert [(await harness.yard.get(job_id)).state for job_id in running] == [State.COMPLETED] * 2
    for job_id in waiting:
        job = await harness.yard.get(job_id)
        assert (job.state, job.attempt) == (State.PENDING, 0)
        assert not harness.flags.has(f"started-{job_id}")
    assert (await harness.verify()).history.claims == 2


@pytest.mark.parametrize("signals", [1, 2])
async def test_the_rest_is_handed_back_uncounted(harness: Harness, signals: int) -> None:
    """After the time for finishing, or at once after a second signal."""
    await harness.configure()
    [worker] = await harness.workers(1, concurrency=2, shutdown_timeout=0.5 if signals == 1 else 600.0)
    job_ids = [await harness.enqueue("gate") for _ in range(3)]
    await harness.until(lambda: harness.flags.count("started-") == 2, "two run")
    worker.send(signal.SIGTERM)
    await harness.until(lambda: harness.flags.has(f"stopping-{worker.name}"), "the worker stops")
    if signals == 2:
        worker.send(signal.SIGTERM)  # and not after ten minutes
    await harness.ended([worker])

    for job_id in job_ids:
        job = await harness.yard.get(job_id)
        assert (job.state, job.deaths, job.errors) == (State.PENDING, 0, ())
    assert harness.flags.count("stopped-") == 2
    harness.flags.put("open-all")
    workers = await harness.workers(1)
    for done in await harness.done(*job_ids):
        assert (done.state, done.attempt, done.deaths) == (State.COMPLETED, 1, 0)
    await harness.stop(workers)
    history = (await harness.verify()).history
    assert (history.claims, history.accepted, history.reclaimed) == (5, 5, 0)
