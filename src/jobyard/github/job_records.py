"""Records of GitHub jobs: the unfinished ones, tombstones of finished ones, and those that no profile serves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.runners.github_job import GitHubJob, GitHubJobState, JobEvent, advance
from jobyard.domain.runners.profile import RunnerProfile, profile_for
from jobyard.github.records import Collection
from jobyard.ports.record_store import RecordStore

ACTIVE = "jobyard.runners.jobs"
FINISHED = "jobyard.runners.finished_jobs"
UNSERVED = "jobyard.runners.unserved_jobs"
REPOSITORIES = "jobyard.runners.repositories"
# GitHub keeps deliveries for 7 days on an Enterprise Server: a redelivery within that time must find the tombstone.
FINISHED_SECONDS = 8 * 86_400.0
UNSERVED_SECONDS = 86_400.0
RECENT_SECONDS = 86_400.0


class Repository(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A repository with recent events, scanned for jobs whose events were lost."""

    full_name: str
    org_name: str = ""
    owner_is_user: bool = False


class Effect(StrEnum):
    """What an event changed."""

    NEW = "new"  # a job that wants a runner, and was not known
    CHANGED = "changed"
    UNCHANGED = "unchanged"  # a duplicate, or older than what is known
    UNSERVED = "unserved"  # no profile serves its labels
    UNKNOWN = "unknown"  # it ran or ended before it was known


class Applied(NamedTuple):
    effect: Effect
    job: GitHubJob


class GitHubJobs:
    """A job is in ACTIVE until it is completed, then in FINISHED.

    The tombstone is written before the active record is removed, and a new job looks for its tombstone after it was
    written: whichever comes first, a completed job does not come back.
    """

    def __init__(self, records: RecordStore, profiles: Sequence[RunnerProfile]) -> None:
        self._active = Collection(records, ACTIVE, GitHubJob)
        self._finished = Collection(records, FINISHED, GitHubJob, FINISHED_SECONDS)
        self._unserved = Collection(records, UNSERVED, GitHubJob, UNSERVED_SECONDS)
        self._repositories = Collection(records, REPOSITORIES, Repository, RECENT_SECONDS)
        self._profiles = profiles
        self._seen_repositories: dict[str, Instant] = {}

    async def active(self) -> list[GitHubJob]:
        return await self._active.all()

    async def unserved(self) -> list[GitHubJob]:
        return await self._unserved.all()

    async def get(self, job_id: int) -> GitHubJob | None:
        key = key_of(job_id)
        return await self._active.get(key) or await self._finished.get(key) or await self._unserved.get(key)

    async def get_active(self, job_id: int) -> GitHubJob | None:
        return await self._active.get(key_of(job_id))

    async def apply(self, event: JobEvent) -> Applied:
        """Store what the event says. A new job that is not in doubt has one ticket already: the caller makes it."""
        job = event.job
        await self._remember_repository(job, event.received_at)
        if job.state is GitHubJobState.COMPLETED:
            return await self._complete(event)
        profile = profile_for(job.labels, self._profiles)
        if profile is not None:
            return await self._upsert(msgspec.structs.replace(event, job=with_profile(job, profile)))
        if job.state is GitHubJobState.IN_PROGRESS and await self.get_active(job.job_id) is not None:
            return await self._upsert(event)  # its profile is known, whatever labels this event names
        return await self._without_profile(event)

    async def _upsert(self, event: JobEvent) -> Applied:
        key = key_of(event.job.job_id)
        new = advance(None, event)
        if new.state is GitHubJobState.QUEUED and not new.in_doubt:
            new = msgspec.structs.replace(new, tickets=1, ticketed_at=event.received_at)
        if await self._active.create(key, new):
            tombstone = await self._finished.get(key)
            if tombstone is not None:
                await self._active.remove(key)
                return Applied(Effect.UNCHANGED, tombstone)
            if await self._unserved.get(key) is not None:  # its profile is a new one
                await self._unserved.remove(key)
            is_late = event.job.state is GitHubJobState.IN_PROGRESS
            return Applied(Effect.UNKNOWN if is_late else Effect.NEW, new)
        before: list[GitHubJob | None] = [None]

        def change(known: GitHubJob | None) -> GitHubJob | None:
            before[0] = known
            return None if known is None else advance(known, event)

        job = await self._active.update(key, change)
        if job is None:
            # It was completed in between.
            return Applied(Effect.UNCHANGED, await self._finished.get(key) or new)
        return Applied(Effect.UNCHANGED if job == before[0] else Effect.CHANGED, job)

    async def _complete(self, event: JobEvent) -> Applied:
        key = key_of(event.job.job_id)
        if (known := await self._finished.get(key)) is not None:
            await self._active.remove(key)  # left over if the process ended between the two writes
            return Applied(Effect.UNCHANGED, known)
        active = await self._active.get(key)
        job = advance(active or await self._unserved.get(key), event)
        is_first = await self._finished.create(key, job)
        await self._active.remove(key)
        await self._unserved.remove(key)
        if not is_first:
            return Applied(Effect.UNCHANGED, await self._finished.get(key) or job)
        if active is not None:
            return Applied(Effect.CHANGED, job)
        is_served = profile_for(job.labels, self._profiles) is not None
        return Applied(Effect.UNKNOWN if is_served else Effect.UNSERVED, job)

    async def _without_profile(self, event: JobEvent) -> Applied:
        key = key_of(event.job.job_id)
        before = await self._unserved.get(key)
        job = await self._unserved.update(key, lambda known: advance(known, event)) or event.job
        if (tombstone := await self._finished.get(key)) is not None:
            await self._unserved.remove(key)
            return Applied(Effect.UNCHANGED, tombstone)
        # Its labels may have been served when it was queued, by a profile that is gone now.
        await self._active.remove(key)
        return Applied(Effect.UNCHANGED if job == before else Effect.UNSERVED, job)

    async def change(self, job_id: int, change: Callable[[GitHubJob], GitHubJob]) -> GitHubJob | None:
        """Change an unfinished job; None if there is no such job."""
        return await self._active.update(key_of(job_id), lambda known: None if known is None else change(known))

    async def note_timeline(self, job_id: int, timeline: dict[str, Instant]) -> None:
        """Keep the legs of the launch of its runner; also of a job that has ended, as it may start untold."""

        def noted(known: GitHubJob | None) -> GitHubJob | None:
            return known if known is None or known.timeline else msgspec.structs.replace(known, timeline=timeline)

        for collection in (self._active, self._finished):
            await collection.update(key_of(job_id), noted)

    async def forget(self, job_id: int) -> None:
        """Remove everything that is known of a job, so that it can be entered again."""
        for collection in (self._active, self._finished, self._unserved):
            await collection.remove(key_of(job_id))

    async def repositories(self) -> list[Repository]:
        """Repositories with events in the last day."""
        return await self._repositories.all()

    async def _remember_repository(self, job: GitHubJob, now: Instant) -> None:
        """Once an hour per repository: every event would otherwise cost another write."""
        name = job.repo_full_name
        if now - self._seen_repositories.get(name, -3_600_000) >= 3_600_000:
            await self._repositories.put(name, repository_of(job))
            self._seen_repositories[name] = now


def repository_of(job: GitHubJob) -> Repository:
    return Repository(full_name=job.repo_full_name, org_name=job.org_name, owner_is_user=job.owner_is_user)


def key_of(job_id: int) -> str:
    """Keys sort as the numbers do.

    >>> key_of(7), key_of(10**10)
    ('00000000000000000007', '00000000010000000000')
    """
    return f"{job_id:020d}"


def with_profile(job: GitHubJob, profile: RunnerProfile) -> GitHubJob:
    return msgspec.structs.replace(job, profile=profile.name)
