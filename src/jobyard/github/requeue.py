"""Jobs entered by hand: checked against GitHub, then stored as if their event had come."""

from __future__ import annotations

import asyncio

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.runners.github_job import GitHubJob, GitHubJobState, JobEvent
from jobyard.errors import NotFound, NotPossible
from jobyard.github.api import GitHubApi
from jobyard.github.errors import GitHubUnavailable
from jobyard.github.event_ingest import EventIngest
from jobyard.github.job_records import Effect
from jobyard.operations.runners import ANSWER_SECONDS


async def requeue(ingest: EventIngest, github: GitHubApi, repo: str, job_id: int, now: Instant) -> GitHubJob:
    """Enter a job again that GitHub has queued, whatever is known of it here.

    Raises NotFound for a job that GitHub does not have, NotPossible for one that needs no runner.
    """
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            found = await github.job(repo, job_id)
    except TimeoutError as error:
        raise GitHubUnavailable(f"GitHub did not answer within {ANSWER_SECONDS:g} seconds. Try again later.") from error
    if found is None:
        raise NotFound(f"GitHub has no job {job_id} in {repo}. Check the repository and the id.")
    if found.state is GitHubJobState.COMPLETED:
        how = f"it has ended on GitHub ({found.conclusion or 'without a conclusion'}). Run the workflow again there."
        raise NotPossible(f"Cannot requeue job {job_id} of {repo}: {how}")
    if found.state is GitHubJobState.IN_PROGRESS:
        raise NotPossible(f"Cannot requeue job {job_id} of {repo}: runner {found.runner_name or '?'} has it.")
    return await enter(ingest, found, now)


async def enter(ingest: EventIngest, job: GitHubJob, now: Instant) -> GitHubJob:
    """Store the job as a queued event, past tombstones and blocks; it gets a ticket of its own."""
    known = await ingest.jobs.get(job.job_id)
    if known is not None:
        await ingest.jobs.forget(job.job_id)
        same = {name: getattr(known, name) for name in ("org_name", "owner_is_user", "queued_at", "installation_id")}
        job = msgspec.structs.replace(job, **{name: value for name, value in same.items() if value})
    event = JobEvent(action=job.state.action, job=job, received_at=now, is_answer=True)
    applied = await ingest.receive(event)
    if applied.effect is Effect.UNSERVED:
        labels = ", ".join(job.labels) or "none"
        raise NotPossible(f"Cannot requeue job {job.job_id}: no runner profile has all of its labels ({labels}).")
    if known is None or not known.tickets or applied.job.state is not GitHubJobState.QUEUED:
        return applied.job
    # Its earlier tickets may still hold their unique keys, so it gets one with a number of its own.
    number = known.tickets + 1
    entered = await ingest.jobs.change(job.job_id, lambda each: msgspec.structs.replace(each, tickets=number))
    if entered is not None:
        await ingest.tickets.add([entered])
    return entered or applied.job
