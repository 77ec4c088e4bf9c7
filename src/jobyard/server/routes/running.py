"""`GET /api/v2/jobs/running`: what runs on each platform, and what waits there."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

from jobyard.api.schemas.running import RunningEnvelope, RunningJob, RunningJobs, RunningSummary
from jobyard.domain.access import Permission
from jobyard.domain.instant import Instant, rfc3339
from jobyard.domain.job import Job, State
from jobyard.operations.workflow_catalog import workflow_id_of
from jobyard.ports.admin_store import Filter
from jobyard.server.route import RequestContext, Routes
from jobyard.server.visible_jobs import filters_in_scope, pages_of

ROUTES = Routes("platforms")
# Further running jobs are counted and not listed.
MAX_LISTED = 1000
# A token that sees only a part of a queue has its waiting jobs counted one by one, up to this many.
MAX_COUNTED = 10_000


@ROUTES.add("GET", "/api/v2/jobs/running", Permission.WATCH, response=RunningEnvelope)
async def list_running_jobs(context: RequestContext) -> RunningEnvelope:
    """List running jobs, longest first, and count the waiting jobs of each platform."""
    own = context.principal.queues
    queues = [info for info in await context.dependencies.store.queues() if not own or info.name in own]
    jobs = [job async for job in _visible(context, State.RUNNING, MAX_LISTED)]
    now = await context.dependencies.store.now()
    running = tuple(
        _running_job(job, now) for job in sorted(jobs, key=lambda job: (job.started_at or now, job.sequence))
    )
    if context.principal.has_whole_queues:
        queued = {info.name: info.waiting + info.delayed for info in queues}
        count = max(len(running), sum(info.running for info in queues))
    else:
        counts = Counter([job.queue async for job in _visible(context, State.PENDING, MAX_COUNTED)])
        queued = dict(sorted(counts.items()))
        count = len(running)
    summary = RunningSummary(running_count=count, queued_count=sum(queued.values()))
    return RunningEnvelope(data=RunningJobs(running=running, queued=queued, summary=summary))


async def _visible(context: RequestContext, state: State, most: int) -> AsyncIterator[Job]:
    filters = filters_in_scope(context.principal, Filter(states=(state,)))
    async for page in pages_of(context.dependencies.store, filters):
        for job in page.jobs[:most]:
            yield job
        most -= len(page.jobs)
        if most <= 0:
            return


def _running_job(job: Job, now: Instant) -> RunningJob:
    started = now if job.started_at is None else job.started_at
    return RunningJob(
        platform=job.queue,
        job_id=job.id,
        workflow_id=workflow_id_of(job),
        started_at=rfc3339(started),
        elapsed_seconds=max(0, now - started) / 1000,
    )
