"""Changes to one job."""

from __future__ import annotations

from jobyard.api.convert import job_view
from jobyard.api.schemas.jobs import (
    JobView,
    PriorityRequest,
    ReasonRequest,
    SignalAnswer,
    SignalRequest,
)
from jobyard.domain.access import Permission
from jobyard.executors.python.payload import to_json
from jobyard.ports.admin_store import Action
from jobyard.server.authorization import note, require_job
from jobyard.server.route import Ask, Routes

ROUTES = Routes("jobs")
# What whoever listens is told of a job that waits.
TOLD = (Action.CANCEL, Action.RETRY)


async def change(ask: Ask, action: Action, *, reason: str = "", priority: int = 0) -> JobView:
    """Change one job and show it as it is then."""
    job_id = await require_job(ask)
    await ask.door.operate.one(action, job_id, reason=reason, priority=priority)
    await note(ask, f"job.{action}", job_id, reason=reason, priority=priority or None)
    job = await ask.door.read.job(job_id)
    if action in TOLD:
        ask.door.changed(job)
    return job_view(job)


@ROUTES.add(
    "POST",
    "/v1/jobs/{id}/cancel",
    Permission.SUBMIT,
    "Cancel a job: a waiting one ends now, a running one is asked to stop",
    body=ReasonRequest,
    answer=JobView,
)
async def cancel_job(ask: Ask) -> JobView:
    return await change(ask, Action.CANCEL, reason=ask.body.reason)


@ROUTES.add(
    "POST", "/v1/jobs/{id}/retry", Permission.OPERATE, "Try a failed or cancelled job again, now", answer=JobView
)
async def retry_job(ask: Ask) -> JobView:
    return await change(ask, Action.RETRY)


@ROUTES.add("POST", "/v1/jobs/{id}/run-now", Permission.OPERATE, "Make a delayed job due now", answer=JobView)
async def run_job_now(ask: Ask) -> JobView:
    return await change(ask, Action.RUN_NOW)


@ROUTES.add(
    "POST",
    "/v1/jobs/{id}/prioritise",
    Permission.OPERATE,
    "Give a waiting job another priority",
    body=PriorityRequest,
    answer=JobView,
)
async def prioritise_job(ask: Ask) -> JobView:
    return await change(ask, Action.PRIORITISE, priority=ask.body.priority)


@ROUTES.add(
    "POST",
    "/v1/jobs/{id}/signal",
    Permission.OPERATE,
    "Wake a job that is parked on this signal, or remember it for when it parks",
    body=SignalRequest,
    answer=SignalAnswer,
)
async def signal_job(ask: Ask) -> SignalAnswer:
    job_id = await require_job(ask)
    data = to_json(ask.body.data, "signal data", ask.door.settings.max_body_bytes)
    woke = await ask.door.store.signal(job_id, ask.body.name, data)
    await note(ask, "job.signal", job_id, signal=ask.body.name)
    return SignalAnswer(woke)


@ROUTES.add("DELETE", "/v1/jobs/{id}", Permission.OPERATE, "Remove a job that does not run", status=204)
async def delete_job(ask: Ask) -> None:
    job_id = await require_job(ask)
    await ask.door.operate.one(Action.DELETE, job_id)
    await note(ask, "job.delete", job_id)
