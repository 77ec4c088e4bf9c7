"""Running jobs report progress, log lines and steps while the server is away: no outage decides how they end."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.servers import Server
from tests.story.harness import Harness
from tests.story.sizes import SOAK, size

from jobyard.domain.job import State

pytestmark = [pytest.mark.story, pytest.mark.timeout(600 if SOAK else 300)]

OUTAGES = size(1, 8)
AWAY_SECONDS = 2.5
LEASE_SECONDS = 15.0  # longer than an outage: the leases hold throughout


async def test_jobs_that_report_outlive_outages_of_the_server(harness: Harness, server: Server) -> None:
    await harness.configure()
    workers = await harness.workers(2, lease_seconds=LEASE_SECONDS)
    job_ids = [await harness.enqueue("report") for _ in range(6)]
    await harness.until(lambda: harness.flags.count("started-") == len(job_ids), "all run")
    for _ in range(OUTAGES):
        last = await rounds(harness, job_ids)
        server.kill()
        await asyncio.sleep(AWAY_SECONDS)
        server.start()
        harness.store_is_back()
        await harness.until(lambda last=last: have_gone_on(harness, job_ids, last), "all report again")
    harness.flags.put("open-all")
    ended = await harness.done(*job_ids)
    await harness.stop(workers)
    assert {(job.state, job.attempt, job.deaths, job.errors) for job in ended} == {(State.COMPLETED, 1, 0, ())}
    for job in ended:
        assert job.result is not None
        count = msgspec.json.decode(job.result, type=int)
        assert [step.name for step in job.steps] == [f"round {number + 1}" for number in range(count)]
        assert {step.status for step in job.steps} == {"passed"}
    assert (await harness.verify()).history.reclaimed == 0


async def rounds(harness: Harness, job_ids: list[str]) -> list[int]:
    """The number of rounds that each job has reported."""
    jobs = [await harness.yard.store.get(job_id) for job_id in job_ids]
    return [len(job.steps) for job in jobs if job is not None]


async def have_gone_on(harness: Harness, job_ids: list[str], last: list[int]) -> bool:
    now = await rounds(harness, job_ids)
    return all(each > before + 2 for before, each in zip(last, now, strict=True))
