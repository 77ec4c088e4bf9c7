"""Client methods for jobs: submit, get, list, wait, change."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, Unpack

import msgspec
from msgspec import UNSET

from jobyard.api.schemas import jobs as schemas
from jobyard.client.address import path
from jobyard.client.errors import class_of
from jobyard.client.requests import job_request
from jobyard.client.transport import Transport, as_query, pause
from jobyard.domain.job import State
from jobyard.domain.job_options import JobOptions, Seconds, seconds_of
from jobyard.errors import JobyardError
from jobyard.operations.queries import not_completed, not_ready
from jobyard.ports.admin_store import Action

# The longest single wait: a connection that is lost without an error delays a caller by this much, not forever.
WAIT_SECONDS = 30.0
# The size of a batch, well below the max_body_bytes of the server.
BATCH_BYTES = 1 << 20


class RemoteJob:
    """A job on a server. `created` is False if another job has the unique key: `id` is then the id of that job."""

    def __init__(self, jobs: JobEndpoints, job_id: str, *, created: bool = True) -> None:
        self._jobs = jobs
        self.id = job_id
        self.created = created

    async def result(self, timeout: Seconds | None = None) -> Any:
        """The result. Raises JobFailed, JobTimedOut, JobCancelled, or ResultNotReady after the timeout."""
        return await self._jobs.result(self.id, timeout)

    async def wait(self, timeout: Seconds | None = None) -> schemas.JobView:
        """Wait until the job is final, however it ended. Raises ResultNotReady."""
        return await self._jobs.end(self.id, timeout)

    async def info(self) -> schemas.JobView:
        """The job as it is now: state, attempts, errors, progress, log. Raises JobNotFound."""
        return await self._jobs.get(self.id)

    async def explain(self) -> schemas.ExplanationView:
        """Why the job is waiting."""
        return await self._jobs.explain(self.id)

    async def cancel(self, reason: str = "") -> None:
        """Cancel the job; a running attempt is asked to stop. Raises NotPossible if the job is final."""
        await self._jobs.cancel(self.id, reason)

    async def retry(self) -> None:
        """Run the job again. Raises NotPossible unless it failed or was cancelled."""
        await self._jobs.retry(self.id)

    async def delete(self) -> None:
        """Remove the job. Raises NotPossible while it is running."""
        await self._jobs.delete(self.id)

    async def run_now(self) -> None:
        """Make the job due if it waits for its time. Raises NotPossible if it is not delayed."""
        await self._jobs.run_now(self.id)

    async def prioritise(self, priority: int) -> None:
        """Change the priority of the job while it waits."""
        await self._jobs.prioritise(self.id, priority)

    async def signal(self, name: str, data: Any = None, *, signal_id: str | None = None) -> bool:
        """Wake the job if it waits for this signal, else keep the signal until it does. True: it woke."""
        return await self._jobs.signal(self.id, name, data, signal_id=signal_id)

    def __repr__(self) -> str:
        return f"<RemoteJob {self.id}>"


class JobEndpoints:
    _transport: Transport

    # Submit

    async def enqueue(self, kind: str, payload: Any = None, **options: Unpack[JobOptions]) -> RemoteJob:
        """Submit a job. Retries of the request carry the same Idempotency-Key, so that they create one job."""
        request = job_request(kind, payload, **options)
        found = await self._transport.call("POST", "/v1/jobs", schemas.JobAccepted, body=request, key=new_key())
        return RemoteJob(self, found.id, created=is_new(request, found.created))

    async def enqueue_many(self, jobs: Iterable[schemas.JobRequest]) -> list[RemoteJob | JobyardError]:
        """Submit jobs, in batches. Each is accepted or rejected separately; a rejected one is returned as its error."""
        found: list[RemoteJob | JobyardError] = []
        for batch in batches(jobs):
            body, key = schemas.BatchRequest(jobs=tuple(batch)), new_key()
            answer = await self._transport.call("POST", "/v1/jobs/batch", schemas.BatchResponse, body=body, key=key)
            found += [self._submitted(*each) for each in zip(batch, answer.items, strict=True)]
        return found

    def _submitted(self, request: schemas.JobRequest, item: schemas.BatchItem) -> RemoteJob | JobyardError:
        if item.id is not None:
            return RemoteJob(self, item.id, created=is_new(request, bool(item.created)))
        return class_of(item.code or "", item.status)(item.detail or "")

    # Read

    def job_handle(self, job_id: str) -> RemoteJob:
        """A handle of a job that was enqueued before."""
        return RemoteJob(self, job_id, created=False)

    async def get(self, job_id: str) -> schemas.JobView:
        """A job as it is now: payload and result as data, times as datetime. Raises JobNotFound."""
        return await self._transport.call("GET", path("v1", "jobs", job_id), schemas.JobView)

    async def result(self, job_id: str, timeout: Seconds | None = None) -> Any:
        """Wait for the result, also through restarts of the server that are shorter than `patience`."""
        job = await self.end(job_id, timeout)
        if job.state is State.COMPLETED:
            return job.result
        raise not_completed(job)

    async def end(self, job_id: str, timeout: Seconds | None = None) -> schemas.JobView:
        """Wait until the job is final, however it ended. Raises ResultNotReady after the timeout."""
        seconds = seconds_of(timeout)
        deadline = None if seconds is None else time.monotonic() + seconds
        early = 0
        while True:
            started = time.monotonic()
            left = None if deadline is None else max(0.0, deadline - started)
            wait = WAIT_SECONDS if left is None else min(WAIT_SECONDS, left)
            job = await self._when_final(job_id, wait if self._transport.may_wait else 0.0, left)
            if job.state.is_final:
                return job
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                raise not_ready(job_id, seconds, job.state)
            # The response came early: too many requests wait already, or the server is stopping. Poll with a backoff.
            early = early + 1 if now - started < wait / 2 else 0
            if early:
                await asyncio.sleep(pause(early) if deadline is None else min(pause(early), deadline - now))

    async def _when_final(self, job_id: str, wait: float, left: float | None) -> schemas.JobView:
        """The job when it is final, or after the wait."""
        most = self._transport.patience
        return await self._transport.call(
            "GET",
            path("v1", "jobs", job_id),
            schemas.JobView,
            query=as_query({"wait": f"{wait:.3f}"}),
            wait_seconds=wait,
            patience=most if left is None else min(left, most),
        )

    async def page(
        self, where: schemas.JobFilter | None = None, *, page_size: int = 50, page_token: str | None = None
    ) -> schemas.JobPage:
        """One page, newest first. A short or empty page may have a token: continue until there is none."""
        query = conditions(where) | {"page_size": page_size, "page_token": page_token}
        return await self._transport.call("GET", "/v1/jobs", schemas.JobPage, query=as_query(query))

    def jobs(
        self, where: schemas.JobFilter | None = None, *, page_size: int = 200
    ) -> AsyncIterator[schemas.JobSummary]:
        """All jobs that match, newest first, read page by page. Also those that chains, groups and batches insert."""
        return self._transport.walk("/v1/jobs", schemas.JobPage, conditions(where) | {"page_size": page_size})

    def dead_letters(
        self, where: schemas.JobFilter | None = None, *, page_size: int = 200
    ) -> AsyncIterator[schemas.JobSummary]:
        """Jobs that are FAILED or TIMEOUT, newest first."""
        return self._transport.walk("/v1/dead-letters", schemas.JobPage, conditions(where) | {"page_size": page_size})

    async def explain(self, job_id: str) -> schemas.ExplanationView:
        """Why the job is waiting."""
        return await self._transport.call("GET", path("v1", "jobs", job_id, "explain"), schemas.ExplanationView)

    # Change

    async def cancel(self, job_id: str, reason: str = "") -> schemas.JobView:
        """A waiting job ends now; a running one is asked to stop."""
        return await self._change(job_id, "cancel", schemas.ReasonRequest(reason=reason))

    async def retry(self, job_id: str) -> schemas.JobView:
        """Run the job again. Raises NotPossible unless it failed or was cancelled."""
        return await self._change(job_id, "retry")

    async def run_now(self, job_id: str) -> schemas.JobView:
        """Make a job that waits for its time due. Raises NotPossible if it is not delayed."""
        return await self._change(job_id, "run-now")

    async def prioritise(self, job_id: str, priority: int) -> schemas.JobView:
        """Change the priority of a job that waits."""
        return await self._change(job_id, "prioritise", schemas.PriorityRequest(priority=priority))

    async def delete(self, job_id: str) -> None:
        """Remove the job from the store. Raises NotPossible while it is running."""
        await self._transport.call("DELETE", path("v1", "jobs", job_id), type(None))

    async def signal(self, job_id: str, name: str, data: Any = None, *, signal_id: str | None = None) -> bool:
        """Wake the job if it waits for this signal; otherwise the signal is stored until it does.

        A job receives a signal with the same `signal_id` once, so that sending is safe to repeat.
        """
        body = schemas.SignalRequest(name=name, data=data, signal_id=signal_id)
        at = path("v1", "jobs", job_id, "signal")
        return (await self._transport.call("POST", at, schemas.SignalResponse, body=body)).woke

    async def _change(self, job_id: str, word: str, body: Any = None) -> schemas.JobView:
        return await self._transport.call("POST", path("v1", "jobs", job_id, word), schemas.JobView, body=body)

    async def change(
        self,
        action: Action,
        *,
        ids: Sequence[str] | None = None,
        where: schemas.JobFilter | None = None,
        reason: str = "",
        priority: int | None = None,
    ) -> schemas.BulkResponse:
        """Change many jobs: by id, or all that match. The server does it in short steps."""
        fields = {"action": action, "reason": reason, "priority": priority}
        return await self._all_steps("/v1/jobs/actions", schemas.BulkRequest, fields, ids, where)

    async def redrive(
        self, *, ids: Sequence[str] | None = None, where: schemas.JobFilter | None = None
    ) -> schemas.BulkResponse:
        """Retry dead letters."""
        return await self._all_steps("/v1/dead-letters/redrive", schemas.RedriveRequest, {}, ids, where)

    async def _all_steps(
        self,
        at: str,
        shape: type[schemas.BulkRequest] | type[schemas.RedriveRequest],
        fields: dict[str, Any],
        ids: Sequence[str] | None,
        where: schemas.JobFilter | None,
    ) -> schemas.BulkResponse:
        steps: list[schemas.BulkResponse] = []
        for some in [None] if ids is None else [tuple(part) for part in parts(ids, schemas.MAX_IDS)]:
            token: str | None = None
            while True:
                body = shape(ids=some, filter=where, page_token=token, **fields)
                answer = await self._transport.call("POST", at, schemas.BulkResponse, body=body)
                steps.append(answer)
                if answer.next_page_token is UNSET:
                    break
                token = str(answer.next_page_token)
        return total(steps, with_ids=ids is not None)


def total(steps: Sequence[schemas.BulkResponse], *, with_ids: bool) -> schemas.BulkResponse:
    """Add up the steps; ids are returned only for jobs that were given by id."""
    done = schemas.BulkResponse(
        changed=sum(step.changed for step in steps), unchanged=sum(step.unchanged for step in steps)
    )
    if not with_ids:
        return done
    missing = tuple(job_id for step in steps for job_id in step.not_found_ids or ())
    return msgspec.structs.replace(
        done,
        not_found=len(missing),
        changed_ids=tuple(job_id for step in steps for job_id in step.changed_ids or ()),
        unchanged_ids=tuple(job_id for step in steps for job_id in step.unchanged_ids or ()),
        not_found_ids=missing,
    )


def conditions(where: schemas.JobFilter | None) -> dict[str, Any]:
    """
    >>> conditions(schemas.JobFilter(queue="mail", state=(State.FAILED,)))
    {'queue': 'mail', 'state': ('FAILED',)}
    """
    return {} if where is None else msgspec.to_builtins(where)


def is_new(request: schemas.JobRequest, created: bool) -> bool:
    """Without a unique key, an existing job can only come from an earlier try of the same request."""
    return created or request.unique is None


def new_key() -> str:
    return secrets.token_hex(16)


def parts(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def batches(jobs: Iterable[schemas.JobRequest]) -> Iterator[list[schemas.JobRequest]]:
    """Split by number of jobs and by bytes, in order."""
    batch: list[schemas.JobRequest] = []
    size = 0
    for job in jobs:
        length = len(msgspec.json.encode(job))
        if batch and (len(batch) == schemas.MAX_BATCH or size + length > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(job)
        size += length
    if batch:
        yield batch
