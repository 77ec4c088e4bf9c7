"""Schemas of GitHub jobs, the runners for them, and organizations."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from jobyard.api.schemas.jobs import RequestSchema, Timestamp
from jobyard.domain.runners.github_job import GitHubJobState
from jobyard.domain.runners.runner import RunnerState

Leg = Literal["received", "planned", "minted", "created", "running", "online", "in_progress", "ended"]


class RunnerReasonView(msgspec.Struct, frozen=True):
    code: str
    sentence: str


class RunnerJobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job of GitHub Actions that wants a runner, has one, or had one."""

    job_id: int
    run_id: int
    run_attempt: int
    job_name: str
    repo_full_name: str
    org_name: str
    labels: tuple[str, ...]
    profile: str | None
    state: GitHubJobState
    reason: RunnerReasonView | None
    runner_name: str | None
    conclusion: str | None
    url: str
    queued_at: Timestamp
    received_at: Timestamp
    started_at: Timestamp | None
    completed_at: Timestamp | None


class RunnerJobPage(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[RunnerJobView, ...]
    next_page_token: str | UnsetType = UNSET


class RunnerLegView(msgspec.Struct, frozen=True, kw_only=True):
    """One step on the way from the webhook to the end of the job."""

    at: Timestamp
    what: Leg
    detail: str = ""


class RunnerPodView(msgspec.Struct, frozen=True, kw_only=True):
    """A runner that was launched, or is being launched."""

    name: str
    org_name: str
    repository: str | None
    profile: str
    cluster: str
    state: RunnerState
    since: Timestamp
    detail: str
    runner_id: int | None
    job_id: int | None
    requested_job_id: int | None
    ticket_id: str | None
    created_at: Timestamp | None
    online_at: Timestamp | None
    busy_at: Timestamp | None


class RunnerPodPage(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[RunnerPodView, ...]
    next_page_token: str | UnsetType = UNSET


class RunnerJobDetails(RunnerJobView, frozen=True, kw_only=True):
    """A GitHub job with its history and the runner that it has, or that is coming for it."""

    sentence: str
    timeline: tuple[RunnerLegView, ...]
    runner: RunnerPodView | None


class RunnerOrgView(msgspec.Struct, frozen=True, kw_only=True):
    """An organization: its limit, its runners, and its GitHub jobs."""

    name: str
    limit: int | None
    own_limit: int | None
    paused: bool
    running: int
    starting: int
    in_progress: int
    waiting: int
    held_back: int
    blocked: int
    reasons: dict[str, int]
    minutes_this_month: float
    jobs_this_month: int


class RunnerTotals(msgspec.Struct, frozen=True, kw_only=True):
    max_total: int | None
    max_per_org: int | None
    running: int
    waiting: int
    in_progress: int
    unserved: int
    reachable: int | None
    sentence: str
    paused: bool
    has_manager: bool


class RunnerOrgList(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[RunnerOrgView, ...]
    totals: RunnerTotals | None  # null for a token that is restricted to groups or kinds


class RequeueRequest(RequestSchema, frozen=True, kw_only=True):
    """A job that GitHub has queued, and that is to be entered again."""

    repo: Annotated[str, Meta(min_length=3, max_length=300, pattern=r"^[\w.-]+/[\w.-]+$")]
    job_id: Annotated[int, Meta(ge=1, le=(1 << 53) - 1)]


class DeliveryResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a webhook delivery."""

    result: str
    event: str
    delivery: str
    job_id: int | None = None
