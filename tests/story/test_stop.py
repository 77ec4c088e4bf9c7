"""SIGTERM: take no more, finish for a while, hand back the rest; a second one: now."""

from __future__ import annotations

import signal
import time

import pytest
from tests.story.scene import Scene

from jobyard.domain.job import State

pytestmark = [pytest.mark.story, pytest.mark.timeout(120)]


async def test_what_runs_may_finish_and_nothing_new_starts(scene: Scene) -> None:
    await scene.configure()
    [worker] = await scene.workers(1, concurrency=2, shutdown_timeout=60.0)
    running = [await scene.enqueue("gate") for _ in range(2)]
    await scene.until(lambda: scene.marks.count("started-") == 2, "both run")
    waiting = [await scene.enqueue("gate") for _ in range(3)]
    worker.send(signal.SIGTERM)
    await scene.until(lambda: scene.marks.has(f"stopping-{worker.name}"), "the worker stops")
    scene.marks.put("open-all")
    await scene.ended([worker])

    assert [(await scene.yard.get(job_id)).state for job_id in running] == [State.COMPLETED] * 2
    for job_id in waiting:
        job = await scene.yard.get(job_id)
        assert (job.state, job.attempt) == (State.PENDING, 0)
        assert not scene.marks.has(f"started-{job_id}")
    assert (await scene.judge()).history.claims == 2


@pytest.mark.parametrize("signals", [1, 2])
async def test_the_rest_is_handed_back_uncounted(scene: Scene, signals: int) -> None:
    """After the time for finishing, or at once after a second signal."""
    await scene.configure()
    [worker] = await scene.workers(1, concurrency=2, shutdown_timeout=0.5 if signals == 1 else 600.0)
    job_ids = [await scene.enqueue("gate") for _ in range(3)]
    await scene.until(lambda: scene.marks.count("started-") == 2, "two run")
    worker.send(signal.SIGTERM)
    await scene.until(lambda: scene.marks.has(f"stopping-{worker.name}"), "the worker stops")
    asked = time.monotonic()
    if signals == 2:
        worker.send(signal.SIGTERM)  # and not after ten minutes
    await scene.ended([worker])
    assert time.monotonic() - asked < 10

    for job_id in job_ids:
        job = await scene.yard.get(job_id)
        assert (job.state, job.deaths, job.errors) == (State.PENDING, 0, ())
    assert scene.marks.count("stopped-") == 2
    scene.marks.put("open-all")
    workers = await scene.workers(1)
    for job in await scene.done(*job_ids):
        assert (job.state, job.attempt, job.deaths) == (State.COMPLETED, 1, 0)
    await scene.stop(workers)
    history = (await scene.judge()).history
    assert (history.claims, history.accepted, history.reclaimed) == (5, 5, 0)
