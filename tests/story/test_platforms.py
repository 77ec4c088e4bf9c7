"""A platform runs one job at a time, and is free again soon after its worker was killed."""

from __future__ import annotations

import pytest
from tests.story.engines import on_every_store
from tests.story.harness import Harness, Process
from tests.story.sizes import RECOVERY_SLACK_SECONDS

from jobyard import Job, State

pytestmark = [pytest.mark.story, pytest.mark.timeout(300)]

# Of the worker that is killed: until then a busy machine must not keep it from renewing.
LEASE_SECONDS = 4.0


async def running(harness: Harness, job_id: str) -> Job | None:
    job = await harness.yard.get(job_id)
    return job if job.state is State.RUNNING else None


@on_every_store
async def test_a_standby_takes_over_the_platform_of_a_killed_worker(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBYARD_PLATFORMS", "oliveyoung,ably")
    monkeypatch.setenv("WORKER_PLATFORMS", "oliveyoung")
    victim = harness.worker(concurrency=2, lease_seconds=LEASE_SECONDS)
    first = await harness.enqueue("gate", queue="oliveyoung")
    await harness.until(lambda: harness.flags.has(f"started-{first}"), "a job runs")
    workers: dict[str, Process] = {}
    for platform in ("oliveyoung", "ably"):
        monkeypatch.setenv("WORKER_PLATFORMS", platform)
        # A long lease, which a busy machine does not let run out.
        worker = harness.worker(concurrency=2, lease_seconds=60.0)
        workers[worker.name] = worker
    await harness.ready(workers.values())
    other = await harness.enqueue("gate", queue="ably")
    await harness.until(lambda: harness.flags.count("started-") == 2, "a job of each platform runs")
    old = await harness.enqueue("gate", queue="oliveyoung")
    info = await harness.queue("oliveyoung")
    assert (info.settings.max_running, info.running, info.waiting) == (1, 1, 1)

    assert (await harness.yard.get(first)).worker == victim.name
    harness.kill(victim)

    async def runs_again() -> bool:
        job = await running(harness, first)
        return job is not None and job.worker != victim.name

    await harness.until(runs_again, "the standby runs the job")
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
