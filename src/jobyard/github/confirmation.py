"""Jobs in doubt: events that came late, as after the loss of the store, are compared with GitHub run by run."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence

from jobyard.domain.runners.github_job import GitHubJob
from jobyard.github.api import GitHubApi
from jobyard.github.errors import GitHubError, GitHubRateLimited
from jobyard.github.event_ingest import EventIngest
from jobyard.github.queued_check import store_answer
from jobyard.ports.clock import Clock

log = logging.getLogger("jobyard.runners")

# Runs that are read at the same time. GitHub asks for few requests at a time, and others are waiting for theirs.
AT_ONCE = 5


class Confirmation:
    def __init__(self, ingest: EventIngest, github: GitHubApi, clock: Clock) -> None:
        self._ingest = ingest
        self._github = github
        self._clock = clock

    async def run_once(self, jobs: Iterable[GitHubJob]) -> int:
        """Ask GitHub about jobs in doubt; returns how many it answered. After a rate limit, the rest waits."""
        by_run: dict[tuple[str, int], list[GitHubJob]] = defaultdict(list)
        for job in sorted(jobs, key=lambda job: job.order):
            by_run[job.repo_full_name, job.run_id].append(job)
        runs = iter(by_run.items())
        answered = changed = 0

        async def work() -> None:
            nonlocal answered, changed
            for (repo, run_id), of_run in runs:
                try:
                    outcomes = await self._confirm(repo, run_id, of_run)
                    answered, changed = answered + len(outcomes), changed + sum(outcomes)
                except GitHubRateLimited:
                    raise
                except GitHubError as error:
                    log.warning("the check of run %d of %s failed: %s", run_id, repo, error)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(AT_ONCE, len(by_run))):
                    group.create_task(work())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        if changed:
            log.warning("%d jobs had gone on before their events came", changed)
        return answered

    async def _confirm(self, repo: str, run_id: int, jobs: Sequence[GitHubJob]) -> list[bool]:
        """For each job that is still in doubt, whether it had changed."""
        known = [job for each in jobs if (job := await self._ingest.jobs.get_active(each.job_id)) and job.in_doubt]
        if not known:
            return []
        found = await self._github.run_jobs(repo, run_id) if run_id else []
        states = {job.job_id: job for job in found or ()}
        outcomes: list[bool] = []
        for job in known:
            answer = states.get(job.job_id)
            if answer is None and found is not None:  # of an earlier attempt of the run
                answer = await self._github.job(repo, job.job_id)
            outcomes.append(await store_answer(self._ingest, job, answer, self._clock.now()))
        return outcomes
