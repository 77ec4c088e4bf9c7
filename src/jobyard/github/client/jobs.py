"""Jobs of workflow runs, and lookup of queued jobs."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from jobyard.domain.runners.github_job import GitHubJob, GitHubJobState
from jobyard.github.client.connection import Endpoints, dig, number, repository_names, text
from jobyard.github.client.session import PER_PAGE, Item
from jobyard.github.errors import GitHubRejected
from jobyard.github.webhook import describe

log = logging.getLogger("jobyard.github")

# In the order in which a run passes through them, so that a run which moves on meanwhile is found twice, not missed.
# The numbers are how many runs of a repository are read: held back ones need no runner yet.
UNFINISHED = {"requested": 50, "pending": 50, "waiting": 50, "queued": 200, "in_progress": 200}
AT_ONCE = 5
UNASSIGNED = (GitHubJobState.QUEUED, GitHubJobState.HELD_BACK)


class GitHubJobEndpoints(Endpoints):
    async def job(self, repo: str, job_id: int) -> GitHubJob | None:
        found = await self._optional(repo, "/repos/{owner}/{repo}/actions/jobs/{id}", job_id)
        job = None if found is None else job_of(repo, found)
        if job is None:
            return None
        is_completed = job.state is GitHubJobState.COMPLETED
        is_user = self._connection.is_user.get(job.org_name.casefold())
        if is_completed and is_user is not None:
            return msgspec.structs.replace(job, owner_is_user=is_user)
        run = await self._optional(repo, "/repos/{owner}/{repo}/actions/runs/{id}", job.run_id)
        if run is None:
            return job if is_completed else None
        return of_run(self._of_repository(job, run), run)

    async def run_jobs(self, repo: str, run_id: int) -> list[GitHubJob] | None:
        async with self._connection.listing(f"the jobs of run {run_id} of {repo}"):
            run = await self._optional(repo, "/repos/{owner}/{repo}/actions/runs/{id}", run_id)
            if run is None:
                return None
            return [of_run(job, run) for job in await self._jobs_of_run(repo, {**run, "id": run_id})]

    async def queued_jobs(self, repo: str) -> list[GitHubJob]:
        async with self._connection.listing(f"the queued jobs of {repo}"):
            runs = await self._unfinished_runs(repo)
            slots = asyncio.Semaphore(AT_ONCE)
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._waiting_jobs(repo, run, slots)) for run in runs.values()]
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from None
        found = {job.job_id: job for task in tasks for job in task.result()}
        return sorted(found.values(), key=lambda job: job.order)

    async def _unfinished_runs(self, repo: str) -> dict[int, Item]:
        session = self._connection.session(repo.partition("/")[0])
        path = "/repos/{owner}/{repo}/actions/runs{?status,per_page}"
        runs: dict[int, Item] = {}
        for status, most in UNFINISHED.items():
            names = repository_names(repo, status=status, per_page=PER_PAGE)
            found: dict[int, Item] = {}
            async for run in session.items(path, names, "workflow_runs"):
                if len(found) >= most:
                    log.warning("%s has more than %d runs that are %s; the oldest are not read", repo, most, status)
                    break
                if number(run.get("id")) is not None:
                    found[run["id"]] = run
            runs |= found
        return runs

    async def _waiting_jobs(self, repo: str, run: Item, slots: asyncio.Semaphore) -> list[GitHubJob]:
        async with slots:
            return [job for job in await self._jobs_of_run(repo, run) if job.state in UNASSIGNED]

    async def _jobs_of_run(self, repo: str, run: Item) -> list[GitHubJob]:
        session = self._connection.session(repo.partition("/")[0])
        path = "/repos/{owner}/{repo}/actions/runs/{id}/jobs{?filter,per_page}"
        names = repository_names(repo, id=run["id"], filter="latest", per_page=PER_PAGE)
        try:
            found = [job_of(repo, item) async for item in session.items(path, names, "jobs")]
        except GitHubRejected as error:
            if error.status == 404:  # the run was deleted meanwhile
                return []
            raise
        return [self._of_repository(job, run) for job in found if job is not None]

    def _of_repository(self, job: GitHubJob, run: Item) -> GitHubJob:
        """The job with the kind of its owner, which never changes, and with GitHub's spelling of the repository."""
        is_user = text(dig(run, "repository", "owner", "type")) == "User"
        self._connection.is_user[job.org_name.casefold()] = is_user
        name = text(dig(run, "repository", "full_name"))
        if name.casefold() != job.repo_full_name.casefold():
            name = job.repo_full_name  # it was renamed: the old name is as good
        return msgspec.structs.replace(job, owner_is_user=is_user, repo_full_name=name, org_name=name.partition("/")[0])

    async def _optional(self, repo: str, path: str, item_id: int) -> Item | None:
        session = self._connection.session(repo.partition("/")[0])
        try:
            return await session.get_item(path, repository_names(repo, id=item_id))
        except GitHubRejected as error:
            if error.status == 404:
                return None
            raise


def job_of(repo: str, item: Item) -> GitHubJob | None:
    """The job that the API describes; None if it has no id or no run."""
    job = describe(item, repo, repo.partition("/")[0])
    if job is None or not job.run_id:
        return None
    return msgspec.structs.replace(job, state=state_of(item.get("status"), item.get("conclusion")))


def state_of(status: Any, conclusion: Any = None) -> GitHubJobState:
    """The state for GitHub's word; a job with an unknown one gets no runner yet.

    >>> [state_of(*words).value for words in (("queued",), ("pending",), (None, "cancelled"))]
    ['queued', 'held_back', 'completed']
    """
    if status == "completed" or conclusion:
        return GitHubJobState.COMPLETED
    known = (GitHubJobState.QUEUED, GitHubJobState.IN_PROGRESS)
    return next((state for state in known if state.value == status), GitHubJobState.HELD_BACK)


def of_run(job: GitHubJob, run: Item) -> GitHubJob:
    """The job with what its run says: GitHub may leave a job queued for ever when the run has ended or was repeated."""
    if job.state is GitHubJobState.COMPLETED:
        return job
    if run.get("status") == "completed" or (number(run.get("run_attempt")) or 1) > job.run_attempt:
        conclusion = text(run.get("conclusion")) or "cancelled"
        return msgspec.structs.replace(job, state=GitHubJobState.COMPLETED, conclusion=conclusion)
    return job
