"""Records of the runner manager as the schemas of the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobyard.api.convert import time_text
from jobyard.api.schemas.runners import Leg, RunnerJobView, RunnerLegView, RunnerPodView, RunnerReasonView
from jobyard.domain.instant import Instant, rfc3339
from jobyard.domain.runners.github_job import GitHubJob
from jobyard.domain.runners.reasons import Reason
from jobyard.domain.runners.runner import Runner
from jobyard.github.runner_records import timeline_of

_SAME = (
    "job_id", "run_id", "run_attempt", "job_name", "repo_full_name", "org_name", "labels", "profile", "state",
    "runner_name", "conclusion", "url",
)  # fmt: skip
# In the order in which a launch passes through them.
LEGS: tuple[Leg, ...] = ("received", "planned", "minted", "created", "running", "online", "in_progress", "ended")


def job_fields(job: GitHubJob, reason: Reason | None) -> dict[str, Any]:
    fields = {name: getattr(job, name) for name in _SAME}
    fields |= {name: rfc3339(getattr(job, name)) for name in ("queued_at", "received_at")}
    fields |= {name: time_text(getattr(job, name) or None) for name in ("started_at", "completed_at")}
    return fields | {"reason": None if reason is None else RunnerReasonView(*reason)}


def job_view(job: GitHubJob, reason: Reason | None) -> RunnerJobView:
    return RunnerJobView(**job_fields(job, reason))


def pod_view(runner: Runner) -> RunnerPodView:
    return RunnerPodView(
        name=runner.name,
        org_name=runner.org_name,
        repository=runner.repository,
        profile=runner.profile,
        cluster=runner.cluster,
        state=runner.state,
        since=rfc3339(runner.since),
        detail=runner.reason,
        runner_id=runner.runner_id,
        job_id=runner.job_id,
        requested_job_id=runner.requested_job_id,
        ticket_id=None if runner.ticket is None else runner.ticket.job_id,
        created_at=time_text(runner.created_at or None),
        online_at=time_text(runner.online_at or None),
        busy_at=time_text(runner.busy_at or None),
    )


def job_timeline(job: GitHubJob, runner: Runner | None) -> tuple[RunnerLegView, ...]:
    """The legs that are known, oldest first. Those of a runner were written into the job when it got the job."""
    stamps: Mapping[str, Instant] = job.timeline or ({} if runner is None else timeline_of(runner))
    known = {**stamps, "received": job.received_at, "in_progress": job.started_at, "ended": job.completed_at}
    # GitHub reports whole seconds, so a job may seem to start before its runner is online.
    if 0 < stamps.get("online", 0) - job.started_at < 1000:
        known["in_progress"] = stamps["online"]
    if 0 < job.received_at - known["in_progress"] < 1000:
        known["in_progress"] = job.received_at
    if 0 < known["in_progress"] - job.completed_at < 1000:
        known["ended"] = known["in_progress"]
    details = {"in_progress": job.runner_name or "", "ended": job.conclusion or ""}
    if 0 < known["in_progress"] < job.received_at:
        details["received"] = "after a runner had the job: its events came late"
    if runner is not None:
        details["created"] = runner.name
    found = [(known[leg], leg) for leg in LEGS if known.get(leg)]
    # A runner that was launched for another job is older than this one.
    ordered = sorted(found, key=lambda each: each[0])
    return tuple(RunnerLegView(at=rfc3339(at), what=leg, detail=details.get(leg, "")) for at, leg in ordered)
