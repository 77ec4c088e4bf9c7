"""Whether GitHub still has a job queued: it may have been cancelled, or given to another runner."""

from __future__ import annotations

import logging

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.outcome import Cancel
from jobyard.domain.runners.github_job import GitHubJob, GitHubJobState, JobEvent, confirmed, missing
from jobyard.domain.runners.plan import Demand, queued_by_demand
from jobyard.domain.runners.reasons import Reason
from jobyard.github.api import GitHubApi
from jobyard.github.intake import RunnerIntake
from jobyard.github.job_records import GitHubJobs
from jobyard.github.launch import Launch, Stop
from jobyard.ports.clock import Clock

log = logging.getLogger("jobyard.runners")

MAX_CHECKED = 20


class QueuedCheck:
    def __init__(self, intake: RunnerIntake, github: GitHubApi, clock: Clock) -> None:
        self._intake = intake
        self._github = github
        self._clock = clock

    async def choose_job(self, launch: Launch) -> GitHubJob:
        """A job that GitHub has queued now: the ticket's own, or the oldest one of the same demand. Raises Stop."""
        jobs = self._intake.jobs
        own = await jobs.get_active(launch.ticket.job_id)
        if own is not None and await self.is_queued(own):
            return own
        demand = (launch.ticket.scope, launch.ticket.profile)
        queued = queued_by_demand(await jobs.active(), self._clock.now()).get(demand, [])
        spare = await self._spare_runners(demand, launch.lease.job_id)
        for job in queued[:MAX_CHECKED]:
            if len(queued) <= spare:
                break
            if await self.is_queued(job):
                return job
            queued = queued[1:]
        raise Stop(Cancel("No queued job needs another runner."))

    async def _spare_runners(self, demand: Demand, ticket_id: str) -> int:
        runners = await self._intake.runners.all()
        return sum(
            runner.state.is_spare
            and (runner.scope, runner.profile) == demand
            and (runner.ticket is None or runner.ticket.job_id != ticket_id)
            for runner in runners
        )

    async def is_queued(self, job: GitHubJob) -> bool:
        """Ask GitHub, and store what it says."""
        if job.state is not GitHubJobState.QUEUED:
            return False
        found = await self._github.job(job.repo_full_name, job.job_id)
        now = self._clock.now()
        if found is None:
            await mark_missing(self._intake.jobs, job, now)
            return False
        if found.state is GitHubJobState.QUEUED:
            await self._intake.jobs.change(job.job_id, lambda known: confirmed(known, now))
            return True
        await self._intake.receive(answer_event(job, found, now))
        return False


async def mark_missing(jobs: GitHubJobs, job: GitHubJob, now: Instant) -> None:
    sentence = f"GitHub does not know the job, or the access does not include {job.repo_full_name}."
    log.warning("job %d gets no runner: %s", job.job_id, sentence)
    await jobs.change(job.job_id, lambda known: missing(known, now, str(Reason("not_visible", sentence))))


def answer_event(known: GitHubJob, found: GitHubJob | None, now: Instant) -> JobEvent:
    """What the API says about a job, as an event; a job that does not exist any more has ended."""
    job = known if found is None else found
    state = GitHubJobState.COMPLETED if found is None else found.state
    same = ("org_name", "owner_is_user", "repo_full_name", "received_at", "queued_at")
    kept = {name: getattr(known, name) for name in same}
    if found is None:
        kept["conclusion"] = "unknown"
    return JobEvent(action=state.value, job=msgspec.structs.replace(job, state=state, **kept), received_at=now)
