"""A platform runs one job at a time, and is free again soon after its worker was killed."""

from __future__ import annotations

import time

import pytest
from tests.story.engines import on_every_store
from tests.story.harness import Harness, Process
from tests.story.sizes import LEASE_SECONDS, RECOVERY_SLACK_SECONDS

from jobyard import Job, State

pytestmark = [pytest.mark.story, pytest.mark.timeout(120)]


async def running(harness: Harness, job_id: str) -> Job | None:
    job = await harness.yard.get(job_id)
    return job if job.state is State.RUNNING else None


@on_every_store
async def test_a_standby_takes_over_the_platform_of_a_killed_worker(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBYARD_PLATFORMS", "oliveyoung,ably")
    workers: dict[str, Process] = {}
    for platform in ("oliveyoung", "oliveyoung", "ably"):
        monkeypatch.setenv("WORKER_PLATFORMS", platform)
        worker = harness.worker(concurrency=2)
        workers[worker.name] = worker
    await harness.ready(workers.values())
    first = await harness.enqueue("gate", queue="oliveyoung")
    other = await harness.enqueue("gate", queue="ably")
    await harness.until(lambda: harness.flags.count("started-") == 2, "a job of each platform runs")
    old = await harness.enqueue("gate", queue="oliveyoung")
    info = await harness.queue("oliveyoung")
    assert (info.settings.max_running, info.running, info.waiting) == (1, 1, 1)

    holder = (await harness.yard.get(first)).worker
    assert holder is not None
    killed = time.monotonic()
    harness.kill(workers.pop(holder))

    async def runs_again() -> bool:
        job = await running(harness, first)
        return job is not None and job.worker != holder

    await harness.until(runs_again, "the standby runs the job")
    assert time.monotonic() - killed < LEASE_SECONDS + RECOVERY_SLACK_SECONDS
    again = await harness.yard.get(first)
    assert (again.worker in workers, again.deaths) == (True, 1)
    assert not harness.flags.has(f"started-{old}")
    assert await running(harness, other), "the other platform goes on"

    urgent = await harness.enqueue("gate", queue="oliveyoung", priority=5)
    harness.flags.put(f"open-{first}")
    await harness.until(lambda: harness.flags.has(f"started-{urgent}"), "the job of higher priority is next")
    assert not harness.flags.has(f"started-{old}")
    harness.flags.put("open-all")
    assert {job.state for job in await harness.done(first, other, old, urgent)} == {State.COMPLETED}
    await harness.stop(workers.values())
    result = await harness.verify()
    assert result.history.reclaimed == 1
    assert max(result.recovery_seconds) < LEASE_SECONDS + RECOVERY_SLACK_SECONDS
