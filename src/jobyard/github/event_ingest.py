"""Ingest of GitHub events, from the webhook or the API: stored before they are acknowledged. Needs only the store."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.runners.github_job import GitHubJob, GitHubJobState, JobEvent
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.github.job_records import Applied, Effect, GitHubJobs
from jobyard.github.runner_records import RunnerRecords, timeline_of
from jobyard.github.tickets import Tickets
from jobyard.github.usage import RunnerUsage
from jobyard.operations.organizations import Organizations
from jobyard.ports.store import Store

log = logging.getLogger("jobyard.runners")


class StoredEvent(NamedTuple):
    """An event that was stored, for the manager of this process and for metrics."""

    applied: Applied
    event: JobEvent


class EventIngest:
    def __init__(self, store: Store, settings: ManagerSettings) -> None:
        self.jobs = GitHubJobs(store, settings.profiles)
        self.runners = RunnerRecords(store)
        self.tickets = Tickets(store)
        self.usage = RunnerUsage(store)
        self.organizations = Organizations(store)
        self.on_received: list[Callable[[StoredEvent], None]] = []

    async def receive(self, event: JobEvent) -> Applied:
        """Store the event and what follows from it. When this returns, nothing of it can be lost."""
        named = msgspec.structs.replace(event.job, org_name=await self.organizations.register(event.job.org_name))
        applied = await self.jobs.apply(msgspec.structs.replace(event, job=named))
        job = applied.job
        is_queued = job.state is GitHubJobState.QUEUED
        if applied.effect is not Effect.UNCHANGED and not (is_queued and applied.effect is Effect.UNSERVED):
            await self._follow(applied, event)
        log.info(
            "%s: job %d of %s (%.100s), %s", event.action, job.job_id, job.repo_full_name, job.job_name, applied.effect
        )
        for callback in self.on_received:
            callback(StoredEvent(applied, event))
        return applied

    async def _follow(self, applied: Applied, event: JobEvent) -> None:
        job = applied.job
        if job.state is GitHubJobState.QUEUED:
            await self._add_ticket(applied, event.received_at)
            return
        runner = await self.runners.bind(job, event.received_at)
        if runner is not None and not job.timeline:
            await self.jobs.note_timeline(job.job_id, timeline_of(runner))
        # By the timeline: the record of its runner may have been removed before this event came.
        if job.state is GitHubJobState.COMPLETED and (runner is not None or job.timeline):
            await self.usage.add(job)

    async def _add_ticket(self, applied: Applied, received_at: Instant) -> None:
        """At once: the plan, which counts exactly, withdraws the ticket if a spare runner takes the job."""
        job: GitHubJob | None = applied.job
        if applied.job.in_doubt:
            return  # it is planned once GitHub has confirmed it
        if applied.effect is Effect.CHANGED:
            if applied.job.tickets:
                return
            job = await self.jobs.change(applied.job.job_id, lambda known: with_one_more_ticket(known, received_at))
        if job is not None and job.state is GitHubJobState.QUEUED:
            await self.tickets.add([job])


def with_one_more_ticket(job: GitHubJob, now: Instant) -> GitHubJob:
    return msgspec.structs.replace(job, tickets=job.tickets + 1, ticketed_at=now)
