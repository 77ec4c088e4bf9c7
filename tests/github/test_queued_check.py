"""Which job a claimed ticket launches a runner for, when GitHub has given its own job to another runner."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.github.runner_site import LINUX, WORKER, RunnerSite, runner_site
from tests.github.scripted_launcher import ScriptedLauncher

from jobyard.demo.fake_github.entities import Job
from jobyard.domain.outcome import Cancel, Snooze
from jobyard.domain.runners import plan as plans
from jobyard.domain.runners.github_job import GitHubJobState
from jobyard.github.launch import Launch, Stop
from jobyard.github.queued_check import QueuedCheck, look_again_seconds
from jobyard.github.tickets import QUEUE, payload_of
from jobyard.ports.clock import SystemClock


@pytest.fixture
async def site() -> AsyncIterator[RunnerSite]:
    async with runner_site() as made:
        await made.start_manager()
        yield made


async def queue(site: RunnerSite) -> Job:
    job = site.queue_on_github()
    await site.receive("acme", job_id=job.id, run_id=job.run.id, queued_at=await site.now())
    return job


async def queue_out_of_order(site: RunnerSite) -> tuple[Job, Job]:
    """The webhook of the older job comes last, so the ticket of the other one is claimed first; GitHub then gives its
    runner the older job."""
    older, newer = site.queue_on_github(), site.queue_on_github()
    for job in (newer, older):
        await site.receive("acme", job_id=job.id, run_id=job.run.id, queued_at=await site.now())
    [runner] = await site.launch(1)
    assert runner.requested_job_id == newer.id
    named = {"runner_name": runner.name, "runner_id": 7}
    await site.receive("acme", GitHubJobState.IN_PROGRESS, job_id=older.id, run_id=older.run.id, **named)
    return older, newer


async def claim(site: RunnerSite) -> Launch:
    [lease] = (await site.store.exchange(WORKER, (), (QUEUE,), 1, 3600)).leases
    return Launch(lease, payload_of(lease), LINUX, ScriptedLauncher())


def check_of(site: RunnerSite) -> QueuedCheck:
    return QueuedCheck(site.ingest, site.github, SystemClock())


async def test_ticket_stays_while_the_job_left_over_is_new(site: RunnerSite) -> None:
    older, _ = await queue_out_of_order(site)
    launch = await claim(site)
    assert launch.ticket.job_id == older.id
    with pytest.raises(Stop) as stop:
        await check_of(site).choose_job(launch)
    assert stop.value.outcome == Snooze(look_again_seconds(launch.lease.job_id))


async def test_ticket_takes_the_job_left_over(site: RunnerSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "IN_FLIGHT_MS", 0)
    _, newer = await queue_out_of_order(site)
    assert (await check_of(site).choose_job(await claim(site))).job_id == newer.id


async def test_tickets_that_count_each_other_both_stay(site: RunnerSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "IN_FLIGHT_MS", 0)
    await queue_out_of_order(site)
    other = await queue(site)
    launches = [await claim(site), await claim(site)]
    assert launches[1].ticket.job_id == other.id
    await site.receive("acme", GitHubJobState.COMPLETED, job_id=other.id, run_id=other.run.id)
    stops = []
    for launch in launches:
        with pytest.raises(Stop) as stop:
            await check_of(site).choose_job(launch)
        stops.append(stop.value.outcome)
    assert stops == [Snooze(look_again_seconds(launch.lease.job_id)) for launch in launches]


async def test_ticket_that_no_job_needs_is_cancelled(site: RunnerSite) -> None:
    _, newer = await queue_out_of_order(site)
    launch = await claim(site)
    await site.receive("acme", GitHubJobState.COMPLETED, job_id=newer.id, run_id=newer.run.id)
    with pytest.raises(Stop) as stop:
        await check_of(site).choose_job(launch)
    assert isinstance(stop.value.outcome, Cancel)


async def test_ticket_is_cancelled_when_a_runner_without_a_job_is_there(site: RunnerSite) -> None:
    first, second = await queue(site), await queue(site)
    [runner, _] = await site.launch(2)
    assert runner.requested_job_id == first.id
    late = await queue(site)
    launch = await claim(site)
    await site.receive("acme", GitHubJobState.COMPLETED, job_id=late.id, run_id=late.run.id)
    with pytest.raises(Stop) as stop:
        await check_of(site).choose_job(launch)
    assert isinstance(stop.value.outcome, Cancel), second


def test_looks_differ_by_ticket() -> None:
    assert len({look_again_seconds(f"ticket {number}") for number in range(20)}) == 20
    assert all(1 <= look_again_seconds(f"ticket {number}") < 2 for number in range(20))
