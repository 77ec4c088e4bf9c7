"""Schemas of `/api/v2`: an envelope around each response, and what runs on each platform."""

from __future__ import annotations

import msgspec

from jobyard.api.schemas.jobs import Timestamp
from jobyard.api.schemas.problems import FieldError


class EnvelopeError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    code: str
    message: str
    errors: tuple[FieldError, ...] = ()
    trace_id: str = ""


class ErrorEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    success: bool = False
    error: EnvelopeError


class RunningJob(msgspec.Struct, frozen=True, kw_only=True):
    platform: str
    job_id: str
    workflow_id: str
    started_at: Timestamp
    elapsed_seconds: float


class RunningSummary(msgspec.Struct, frozen=True, kw_only=True):
    running_count: int
    queued_count: int


class RunningJobs(msgspec.Struct, frozen=True, kw_only=True):
    running: tuple[RunningJob, ...]
    queued: dict[str, int]
    summary: RunningSummary


class RunningEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    success: bool = True
    data: RunningJobs
