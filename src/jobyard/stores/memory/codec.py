"""Codec: stored jobs as the domain's `Job` and `Lease`."""

from __future__ import annotations

import msgspec

from jobyard.domain.job import AttemptError, Job, LogLine, Step
from jobyard.domain.lease import Lease
from jobyard.stores.memory.stored_job import StoredJob


def lease_of(stored: StoredJob) -> Lease:
    assert stored.lease is not None
    return Lease(
        job_id=stored.id,
        sequence=stored.sequence,
        token=stored.lease.token,
        kind=stored.new.kind,
        queue=stored.new.queue,
        group=stored.new.group,
        priority=stored.priority,
        attempt=stored.attempt,
        max_attempts=stored.new.max_attempts,
        deaths=stored.deaths,
        payload=stored.new.payload,
        private_payload=stored.private_payload,
        timeout_seconds=stored.new.timeout_seconds,
        backoff=stored.new.backoff,
        signal=stored.signal,
        is_workflow=stored.new.is_workflow,
        parent=stored.new.parent,
        cancel_requested=stored.cancel_carried,
    )


def job_of(stored: StoredJob) -> Job:
    parent_id = None if stored.new.parent is None else stored.new.parent.job_id
    return _job(stored, tuple(stored.errors), tuple(stored.log), tuple(stored.steps.values()), parent_id)


def summary_of(stored: StoredJob) -> Job:
    """Return the job as `find` lists it: without log lines, steps, tracebacks and parent."""
    return _job(stored, tuple(msgspec.structs.replace(error, traceback=None) for error in stored.errors))


def _job(
    stored: StoredJob,
    errors: tuple[AttemptError, ...],
    log: tuple[LogLine, ...] = (),
    steps: tuple[Step, ...] = (),
    parent_id: str | None = None,
) -> Job:
    return Job(
        id=stored.id,
        kind=stored.new.kind,
        queue=stored.new.queue,
        group=stored.new.group,
        priority=stored.priority,
        payload=msgspec.Raw(stored.new.payload),
        state=stored.state,
        attempt=stored.attempt,
        max_attempts=stored.new.max_attempts,
        deaths=stored.deaths,
        timeout_seconds=stored.new.timeout_seconds,
        backoff=stored.new.backoff,
        run_at=stored.run_at,
        sequence=stored.sequence,
        unique_key=stored.new.unique.key if stored.new.unique else None,
        tags=stored.new.tags,
        created_at=stored.created_at,
        started_at=stored.started_at,
        finished_at=stored.finished_at,
        worker=stored.worker,
        external_id=stored.external_id,
        waiting_for=stored.waiting_for,
        cancel_requested=stored.cancel_requested,
        progress=stored.progress,
        result=None if stored.result is None else msgspec.Raw(stored.result),
        reason=stored.reason,
        errors=errors,
        log=log,
        steps=steps,
        parent_id=parent_id,
        is_workflow=stored.new.is_workflow,
    )
