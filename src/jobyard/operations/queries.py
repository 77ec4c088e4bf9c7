"""Queries: one job, its end, its result, lists and counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Protocol, TypeVar

from jobyard.domain.job import Ending, Job, State, error_summary
from jobyard.errors import (
    HandlerError,
    JobCancelled,
    JobFailed,
    JobNotCompleted,
    JobNotFound,
    JobTimedOut,
    ResultNotReady,
)
from jobyard.ports.admin_store import Filter, Page

PAGE = 200
# The longest single wait: a connection that is lost without an error delays a caller by this much, not forever.
WAIT_SECONDS = 30.0
T = TypeVar("T")


async def take(items: AsyncIterator[T], limit: int) -> list[T]:
    """The first items of a list that may be long."""
    found: list[T] = []
    async for item in items:
        found.append(item)
        if len(found) >= limit:
            break
    return found


class JobReader(Protocol):
    """The verbs that queries need: a store has them, and a client of a server."""

    async def get(self, job_id: str) -> Job | None: ...
    async def find(self, where: Filter, limit: int = 50, cursor: str | None = None) -> Page: ...
    async def wait_for_end(self, job_id: str, timeout_seconds: float) -> Job | None: ...


class Queries:
    def __init__(self, reader: JobReader) -> None:
        self._reader = reader

    async def job(self, job_id: str) -> Job:
        job = await self._reader.get(job_id)
        if job is None:
            raise JobNotFound.of(job_id)
        return job

    async def walk(self, where: Filter) -> AsyncIterator[Job]:
        """All jobs that match, newest first, fetched page by page."""
        cursor: str | None = None
        while True:
            page = await self._reader.find(where, PAGE, cursor)
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
        """Wait until the job is final. Raises ResultNotReady after the timeout."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout_seconds is None else loop.time() + timeout_seconds
        while True:
            left = WAIT_SECONDS if deadline is None else min(WAIT_SECONDS, deadline - loop.time())
            job = await self._reader.wait_for_end(job_id, max(0.0, left))
            if job is not None:
                return job
            if deadline is not None and loop.time() >= deadline:
                job = await self.job(job_id)
                if job.state.is_final:
                    return job
                raise not_ready(job_id, timeout_seconds, job.state)

    async def result(self, job_id: str, timeout_seconds: float | None = None) -> bytes:
        """The result of a completed job; raises the error that matches any other end."""
        job = await self.end(job_id, timeout_seconds)
        if job.state is State.COMPLETED:
            return bytes(job.result) if job.result is not None else b"null"
        raise not_completed(job)


class FinishedJob(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def state(self) -> State: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def errors(self) -> Sequence[FailedAttempt]: ...


class FailedAttempt(Protocol):
    @property
    def ending(self) -> Ending: ...
    @property
    def message(self) -> str: ...
    @property
    def type(self) -> str | None: ...
    @property
    def traceback(self) -> str | None: ...


def not_completed(job: FinishedJob) -> JobNotCompleted:
    """The error for a job that ended without a result; its cause is what the handler raised, if that ended the job."""
    last = job.errors[-1] if job.errors else None
    raised = job.state is State.FAILED and last is not None and last.ending is Ending.ERROR and last.type is not None
    if last is None or last.type is None or not raised or last.message != job.reason:
        return ENDS[job.state](f"Job {job.id} ({job.kind}) is {job.state}: {job.reason}")
    error = ENDS[job.state](f"Job {job.id} ({job.kind}) is {job.state}: {error_summary(last.type, last.message)}")
    error.__cause__ = HandlerError(last.type, last.message, last.traceback)
    return error


def not_ready(job_id: str, timeout_seconds: float | None, state: State) -> ResultNotReady:
    hint = f" Run `jobyard explain {job_id}` to see why." if state is State.PENDING else ""
    return ResultNotReady(f"Job {job_id} did not end within {timeout_seconds:g} s. It is {state}.{hint}")


ENDS: dict[State, type[JobNotCompleted]] = {
    State.FAILED: JobFailed,
    State.TIMEOUT: JobTimedOut,
    State.CANCELLED: JobCancelled,
}
