"""Lost and late events: failed deliveries are sent again after a restart, and GitHub is asked about late ones."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.github.runner_site import LABELS, WORKER, RunnerSite, runner_site
from tests.github.scripted_launcher import ScriptedLauncher
from tests.support import eventually

from jobyard.demo.fake_github import JobSpec
from jobyard.demo.fake_github.entities import Job
from jobyard.domain.runners import github_job
from jobyard.domain.runners.github_job import GitHubJob, GitHubJobState
from jobyard.github.api import HookDelivery
from jobyard.github.manager import RunnerManager
from jobyard.github.tickets import ticket_of

HOUR_MS = 3_600_000
SPECS = [JobSpec(labels=list(LABELS), duration=3600.0) for _ in range(30)]


@pytest.fixture
async def site() -> AsyncIterator[RunnerSite]:
    async with runner_site() as made:
        await made.start_manager()
        yield made


@pytest.fixture
async def manager(site: RunnerSite) -> AsyncIterator[RunnerManager]:
    made = RunnerManager(
        site.store, site.settings, site.github, {"default": ScriptedLauncher()}, worker_id=WORKER, ingest=site.ingest
    )
    await made.start()
    yield made
    await made.stop()


def queue_run(site: RunnerSite) -> list[Job]:
    repository = site.fake.create_repository(site.fake.create_organization("acme"), "shop")
    return site.fake.queue_run(repository, SPECS).jobs


async def run(site: RunnerSite, job: Job) -> None:
    """On a runner of ours, which the cluster does not show any more."""
    await site.receive("acme", job_id=job.id, run_id=job.run.id)
    [runner] = await site.launch()
    of_runner = {"runner_name": runner.name, "runner_id": 7}
    await site.receive("acme", GitHubJobState.IN_PROGRESS, job_id=job.id, run_id=job.run.id, **of_runner)


async def deliver_late(site: RunnerSite, *jobs: Job, by_ms: int = HOUR_MS) -> None:
    queued_at = await site.now() - by_ms
    for job in jobs:
        await site.receive("acme", job_id=job.id, run_id=job.run.id, queued_at=queued_at)


async def waiting(site: RunnerSite) -> dict[int, str]:
    page = await site.queries.jobs(limit=1000)
    return {job.job_id: job.reason.code for job in page.items if job.reason is not None}


async def test_ended_jobs_leave_the_view_without_a_ticket(site: RunnerSite, manager: RunnerManager) -> None:
    jobs = queue_run(site)
    ended, queued = jobs[:20], jobs[20:]
    for job in ended:
        site.fake.jobs.complete(job, "success")
    await deliver_late(site, *jobs)
    await eventually(lambda: _shows(site, {job.id for job in queued}), 10)

    async def planned() -> bool:
        tickets = [ticket_of(ticket).job_id for ticket in await site.ingest.tickets.live()]
        assert not {job.id for job in ended} & set(tickets)
        return sorted(tickets) == sorted(job.id for job in queued)

    await eventually(planned, 10)


async def _shows(site: RunnerSite, expected: set[int]) -> bool:
    found = await waiting(site)
    return found.keys() == expected and "checking" not in found.values()


async def test_until_github_answers_the_reason_is_checking_and_nothing_is_planned(site: RunnerSite) -> None:
    job = queue_run(site)[0]
    await deliver_late(site, job)
    assert await waiting(site) == {job.id: "checking"}
    assert await site.ingest.tickets.live() == []


async def test_event_in_time_has_its_ticket_at_once(site: RunnerSite) -> None:
    job = queue_run(site)[0]
    await deliver_late(site, job, by_ms=3_000)
    assert len(await site.ingest.tickets.live()) == 1


async def test_job_whose_end_was_not_told_ends_soon_after_its_runner(
    site: RunnerSite, manager: RunnerManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(github_job, "RUNNER_END_MS", 0)
    job = queue_run(site)[0]
    await run(site, job)
    site.fake.jobs.complete(job, "success")  # its webhook is lost, and its pod is gone
    manager.wake()

    async def ended() -> bool:
        found = await site.ingest.jobs.get(job.id)
        return found is not None and found.state is GitHubJobState.COMPLETED

    await eventually(ended, 10)


async def test_github_is_asked_once_for_a_job_whose_runner_has_ended(
    site: RunnerSite, manager: RunnerManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(github_job, "RUNNER_END_MS", 0)
    asked: list[int] = []
    run_jobs = site.github.run_jobs

    async def counted(repo: str, run_id: int) -> list[GitHubJob] | None:
        asked.append(run_id)
        found = await run_jobs(repo, run_id)
        return [msgspec.structs.replace(each, state=GitHubJobState.IN_PROGRESS) for each in found or ()]

    monkeypatch.setattr(site.github, "run_jobs", counted)
    job = queue_run(site)[0]
    await run(site, job)
    manager.wake()

    async def answered() -> bool:
        found = await site.ingest.jobs.get_active(job.id)
        return bool(asked) and found is not None and not found.in_doubt and not found.runner_ended_at

    await eventually(answered, 10)
    for _ in range(3):
        await manager.run_once()
    assert asked == [job.run.id]


async def test_github_is_asked_once_per_run(site: RunnerSite) -> None:
    manager = RunnerManager(site.store, site.settings, site.github, {}, worker_id=WORKER, ingest=site.ingest)
    jobs = queue_run(site)
    await deliver_late(site, *jobs)
    asked: list[int] = []
    run_jobs, one_job = site.github.run_jobs, site.github.job
    site.github.run_jobs = lambda repo, run_id: asked.append(run_id) or run_jobs(repo, run_id)  # type: ignore[method-assign,func-returns-value]
    site.github.job = lambda repo, job_id: asked.append(job_id) or one_job(repo, job_id)  # type: ignore[method-assign,func-returns-value]
    await manager.confirmation.run_once(await site.ingest.jobs.active())
    assert asked == [jobs[0].run.id]
    assert not any(job.in_doubt for job in await site.ingest.jobs.active())


async def test_job_of_an_earlier_attempt_has_ended(site: RunnerSite, manager: RunnerManager) -> None:
    job = queue_run(site)[0]
    site.fake.jobs.cancel_run(job.run)
    site.fake.jobs.rerun(job.run)
    await deliver_late(site, job)
    await eventually(lambda: _shows(site, set()), 10)


async def test_without_an_answer_of_github_the_job_stays_in_doubt(site: RunnerSite) -> None:
    manager = RunnerManager(site.store, site.settings, site.github, {}, worker_id=WORKER, ingest=site.ingest)
    job = queue_run(site)[0]
    await deliver_late(site, job)
    site.fake.faults.server_error = 1.0
    # 0: nothing to plan with, so that GitHub is asked again by the next tick and not at once.
    assert await manager.confirmation.run_once(await site.ingest.jobs.active()) == 0
    await manager.plan_once()
    assert (await waiting(site), await site.ingest.tickets.live()) == ({job.id: "checking"}, [])
    site.fake.faults.server_error = 0.0
    assert await manager.confirmation.run_once(await site.ingest.jobs.active()) == 1
    await manager.plan_once()
    assert len(await site.ingest.tickets.live()) == 1


# Deliveries that failed


class FailedDeliveries:
    """Deliveries that GitHub lists as failed, and those that it was asked to send again."""

    def __init__(self, site: RunnerSite) -> None:
        self.listed: list[HookDelivery] = []
        self.redelivered: list[str] = []
        site.github.deliveries = self._deliveries  # type: ignore[method-assign]
        site.github.redeliver = self._redeliver  # type: ignore[method-assign]

    def fail(self, guid: str, at: int) -> None:
        self.listed.append(
            HookDelivery(
                id=len(self.listed) + 1,
                guid=guid,
                delivered_at=at,
                event="workflow_job",
                action="queued",
                status_code=0,
            )
        )

    async def _deliveries(self, since: int) -> AsyncIterator[HookDelivery]:
        for delivery in self.listed:
            if delivery.delivered_at >= since:
                yield delivery

    async def _redeliver(self, delivery: HookDelivery) -> None:
        self.redelivered.append(delivery.guid)
        self.listed = [msgspec.structs.replace(each, status_code=200) for each in self.listed]


async def test_deliveries_that_failed_during_a_quick_restart_are_sent_again_at_once(site: RunnerSite) -> None:
    """The manager that was stopped had looked for failed ones a moment before."""
    failed = FailedDeliveries(site)

    def replica() -> RunnerManager:
        return RunnerManager(
            site.store,
            site.settings,
            site.github,
            {"default": ScriptedLauncher()},
            worker_id=WORKER,
            ingest=site.ingest,
        )

    failed.fail("first", await site.now() - 30_000)
    before = replica()
    await before.start()
    await eventually(lambda: failed.redelivered == ["first"], 10)
    await before.stop()
    failed.fail("second", await site.now() - 11_000)
    after = replica()
    await after.start()
    await eventually(lambda: failed.redelivered == ["first", "second"], 4)
    await after.stop()
