"""What happens in one process reaches another at once: new work, and the wish to stop."""

from __future__ import annotations

import pytest
from tests.story.engines import on_every_store
from tests.story.harness import Harness

from jobyard.domain.job import State

pytestmark = [pytest.mark.story, pytest.mark.timeout(300)]


@on_every_store
async def test_an_idle_worker_in_another_process_starts_a_new_job_at_once(harness: Harness) -> None:
    await harness.configure()
    workers = await harness.workers(1, polls=False)  # so it must be woken
    for _ in range(11):
        await harness.done(await harness.enqueue("span", {"seconds": 0}))
    await harness.stop(workers)
    await harness.verify()


@on_every_store
async def test_a_job_cancelled_while_no_worker_is_up_never_starts(harness: Harness) -> None:
    await harness.configure()
    cancelled = await harness.yard.enqueue("gate")
    await cancelled.cancel("not needed")
    workers = await harness.workers(1)
    await harness.done(await harness.enqueue("span", {"seconds": 0}))
    await harness.stop(workers)
    job = await cancelled.info()
    assert (job.state, job.attempt, job.reason) == (State.CANCELLED, 0, "not needed")
    assert not harness.flags.has(f"started-{job.id}")
    assert (await harness.verify()).history.claims == 1


@on_every_store
async def test_a_cancel_reaches_a_running_job_in_another_process(harness: Harness) -> None:
    await harness.configure()
    workers = await harness.workers(1)
    running = await harness.yard.enqueue("gate")
    await harness.until(lambda: harness.flags.has(f"started-{running.id}"), "it runs")
    await running.cancel("changed my mind")
    [job] = await harness.done(running.id)
    assert (job.state, job.reason) == (State.CANCELLED, "changed my mind")
    assert harness.flags.has(f"stopped-{running.id}")
    await harness.done(await harness.enqueue("span", {"seconds": 0}))
    await harness.stop(workers)
    assert (await harness.verify()).history.reclaimed == 0
