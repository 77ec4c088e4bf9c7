"""What people ask: a job, its end, lists, counts, and why a job waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from jobyard.domain.explain import Explanation, explain
from jobyard.domain.job import Job, State
from jobyard.errors import JobCancelled, JobFailed, JobNotCompleted, JobNotFound, JobTimedOut, ResultNotReady
from jobyard.ports.admin_store import Filter
from jobyard.ports.store import Store

PAGE = 200
# A wait is asked anew this often, so that a lost connection cannot make it endless.
ASK_AGAIN_SECONDS = 30.0


class Read:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def job(self, job_id: str) -> Job:
        job = await self._store.get(job_id)
        if job is None:
            raise JobNotFound.of(job_id)
        return job

    async def explain(self, job_id: str) -> Explanation:
        return explain(await self._store.standing(job_id))

    async def walk(self, where: Filter) -> AsyncIterator[Job]:
        """All jobs that match, newest first, page by page."""
        cursor: str | None = None
        while True:
            page = await self._store.find(where, PAGE, cursor)
            for job in page.jobs:
                yield job
            cursor = page.cursor
            if cursor is None:
                return

    async def count(self, where: Filter, most: int = 1_000_000) -> int:
        number = 0
        async for _ in self.walk(where):
            number += 1
            if number >= most:
                break
        return number

    async def end(self, job_id: str, timeout_seconds: float | None = None) -> Job:
        """The job once it is final."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout_seconds is None else loop.time() + timeout_seconds
        while True:
            left = ASK_AGAIN_SECONDS if deadline is None else min(ASK_AGAIN_SECONDS, deadline - loop.time())
            job = await self._store.wait_for_end(job_id, max(0.0, left))
            if job is not None:
                return job
            if deadline is not None and loop.time() >= deadline:
                raise ResultNotReady(f"Job {job_id} did not end within {timeout_seconds:g} s; it goes on.")

    async def result(self, job_id: str, timeout_seconds: float | None = None) -> bytes:
        """The result of a job that ended well; else the error that says how it ended."""
        job = await self.end(job_id, timeout_seconds)
        if job.state is State.COMPLETED:
            return bytes(job.result) if job.result is not None else b"null"
        raise ENDS[job.state](f"Job {job_id} ({job.kind}) is {job.state}: {job.reason}")


ENDS: dict[State, type[JobNotCompleted]] = {
    State.FAILED: JobFailed,
    State.TIMEOUT: JobTimedOut,
    State.CANCELLED: JobCancelled,
}
