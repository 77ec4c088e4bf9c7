"""Whether GitHub still has a job queued: it may have been cancelled, or given to another runner."""

from __future__ import annotations

import logging
import zlib

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.outcome import Cancel, Snooze
from jobyard.domain.runners.github_job import (
    GitHubJob,
    GitHubJobState,
    JobEvent,
    confirmed,
    is_ended_by_absence,
    missing,
)
from jobyard.domain.runners.plan import Ticket, Uncovered, uncovered
from jobyard.domain.runners.reasons import Reason
from jobyard.github.api import GitHubApi
from jobyard.github.event_ingest import EventIngest
from jobyard.github.job_records import GitHubJobs
from jobyard.github.launch import Launch, Stop
from jobyard.github.tickets import ticket_of
from jobyard.ports.clock import Clock

log = logging.getLogger("jobyard.runners")

MAX_CHECKED = 20
# Until a ticket that found no job for now looks again. Shorter would be a busy loop; longer would delay the job.
LOOK_AGAIN_SECONDS = 1.0


class QueuedCheck:
    def __init__(self, ingest: EventIngest, github: GitHubApi, clock: Clock) -> None:
        self._ingest = ingest
        self._github = github
        self._clock = clock

    async def choose_job(self, launch: Launch) -> GitHubJob:
        """A job that GitHub has queued now: the ticket's own, or one of its demand without a runner. Raises Stop.

        GitHub may have given the runner of another ticket the job of this one. That ticket is gone, so this one must
        stay for its job, also while it cannot be told yet whether a ticket is on its way for that job.
        """
        jobs = self._ingest.jobs
        own = await jobs.get_active(launch.ticket.job_id)
        if own is not None and await self.is_queued(own):
            return own
        for _ in range(MAX_CHECKED):
            found = await self._uncovered(launch)
            if found.job is None:
                break
            if await self.is_queued(found.job):
                return found.job
        if found.may_follow:
            raise Stop(Snooze(look_again_seconds(launch.lease.job_id)))
        raise Stop(Cancel("No queued job needs another runner."))

    async def _uncovered(self, launch: Launch) -> Uncovered:
        ticket = Ticket(
            id=launch.lease.job_id,
            scope=launch.ticket.scope,
            profile=launch.ticket.profile,
            job_id=launch.ticket.job_id,
            is_running=True,
        )
        # In this order: `uncovered` knows, as `plan` does, which of the three may be older than the others.
        jobs, runners = await self._ingest.jobs.active(), await self._ingest.runners.all()
        tickets = [ticket_of(job) for job in await self._ingest.tickets.live()]
        return uncovered(jobs, runners, tickets, ticket, self._clock.now())

    async def is_queued(self, job: GitHubJob) -> bool:
        """Ask GitHub, and store what it says."""
        if job.state is not GitHubJobState.QUEUED:
            return False
        found = await self._github.job(job.repo_full_name, job.job_id)
        now = self._clock.now()
        if found is None:
            await mark_missing(self._ingest.jobs, job, now)
            return False
        await store_answer(self._ingest, job, found, now)
        return found.state is GitHubJobState.QUEUED


def look_again_seconds(ticket_id: str) -> float:
    """Different for each ticket: two that count each other must not look at the same time for ever."""
    return LOOK_AGAIN_SECONDS + zlib.crc32(ticket_id.encode()) % 1000 / 1000


async def store_answer(ingest: EventIngest, job: GitHubJob, found: GitHubJob | None, now: Instant) -> bool:
    """Store what GitHub says about a job; whether it had changed. None: GitHub does not know it."""
    if found is None and not is_ended_by_absence(job, now):
        await mark_missing(ingest.jobs, job, now)
        return False
    if found is not None and found.state is job.state:
        await ingest.jobs.change(job.job_id, lambda known: confirmed(known, now))
        return False
    await ingest.receive(answer_event(job, found, now))
    return True


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
    described = msgspec.structs.replace(job, state=state, **kept)
    return JobEvent(action=state.action, job=described, received_at=now, is_answer=True)
