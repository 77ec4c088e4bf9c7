"""Runs of programs as callers see them, with four statuses for the states of a job."""

from __future__ import annotations

import msgspec

from jobyard.domain.job import Job, State


class RawExecution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An ExecutionView whose result is encoded JSON."""

    job_id: str
    status: str
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    reason: str | msgspec.UnsetType = msgspec.UNSET


def raw_execution(job: Job) -> RawExecution:
    match job.state:
        case State.PENDING | State.RUNNING:
            return RawExecution(job_id=job.id, status=job.state)
        case State.COMPLETED:
            return RawExecution(job_id=job.id, status=job.state, result=job.result or msgspec.Raw(b"{}"))
        case State.FAILED:
            return RawExecution(job_id=job.id, status=job.state, reason=job.reason or "failed")
    reason = f"{job.state}: {job.reason}" if job.reason else str(job.state)
    return RawExecution(job_id=job.id, status=State.FAILED, reason=reason)
