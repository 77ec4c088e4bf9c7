"""What happens in one process reaches another at once: new work, and the wish to stop."""

from __future__ import annotations

import time
from statistics import median

import pytest
from tests.story.engines import on_every_store
from tests.story.overlap import seen
from tests.story.scene import Scene

from jobyard.domain.job import State

pytestmark = [pytest.mark.story, pytest.mark.timeout(120)]


@on_every_store
async def test_an_idle_worker_in_another_process_starts_a_new_job_at_once(scene: Scene) -> None:
    await scene.configure()
    workers = await scene.workers(1)
    delays = []
    for _ in range(11):
        asked = time.monotonic_ns()
        [job] = await scene.done(await scene.enqueue("span", {"seconds": 0}))
        delays.append((seen(job)[1] - asked) / 1e9)
    await scene.stop(workers)
    await scene.judge()
    # A worker that only looked once a second would need half a second in the middle.
    assert median(delays) < 0.25, delays


@on_every_store
async def test_a_job_cancelled_while_no_worker_is_up_never_starts(scene: Scene) -> None:
    await scene.configure()
    cancelled = await scene.yard.enqueue("gate")
    await cancelled.cancel("nobody wants it")
    workers = await scene.workers(1)
    await scene.done(await scene.enqueue("span", {"seconds": 0}))
    await scene.stop(workers)
    job = await cancelled.job()
    assert (job.state, job.attempt, job.reason) == (State.CANCELLED, 0, "nobody wants it")
    assert not scene.marks.has(f"started-{job.id}")
    assert (await scene.judge()).history.claims == 1


@on_every_store
async def test_a_cancel_reaches_a_running_job_in_another_process(scene: Scene) -> None:
    await scene.configure()
    workers = await scene.workers(1)
    running = await scene.yard.enqueue("gate")
    await scene.until(lambda: scene.marks.has(f"started-{running.id}"), "it runs")
    await running.cancel("changed my mind")
    [job] = await scene.done(running.id)
    assert (job.state, job.reason) == (State.CANCELLED, "changed my mind")
    assert scene.marks.has(f"stopped-{running.id}")
    await scene.done(await scene.enqueue("span", {"seconds": 0}))
    await scene.stop(workers)
    assert (await scene.judge()).history.reclaimed == 0
