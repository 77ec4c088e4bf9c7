"""Actions on one job: cancel, retry, run now, prioritise, signal, delete."""

from __future__ import annotations

from jobyard.api.convert import job_view
from jobyard.api.schemas.jobs import JobView, PriorityRequest, ReasonRequest, SignalRequest, SignalResponse
from jobyard.domain.access import Permission
from jobyard.executors.python.payload import to_json
from jobyard.ports.admin_store import Action
from jobyard.server.authorization import require_job
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("jobs")
# Actions whose effect on a waiting job is published as a live event.
PUBLISHED = (Action.CANCEL, Action.RETRY)


async def change(context: RequestContext, action: Action, *, reason: str = "", priority: int = 0) -> JobView:
    """Apply the action and return the job after it."""
    job_id = await require_job(context)
    await context.operations.change_one(action, job_id, reason=reason, priority=priority)
    job = await context.operations.job(job_id)
    if action in PUBLISHED:
        context.dependencies.changed(job)
    return job_view(job)


@ROUTES.add("POST", "/v1/jobs/{id}/cancel", Permission.SUBMIT, body=ReasonRequest, response=JobView)
async def cancel_job(context: RequestContext) -> JobView:
    """Cancel a job: a waiting job ends at once, a running job is asked to stop."""
    return await change(context, Action.CANCEL, reason=context.body.reason)


@ROUTES.add("POST", "/v1/jobs/{id}/retry", Permission.OPERATE, response=JobView)
async def retry_job(context: RequestContext) -> JobView:
    """Retry a failed or cancelled job now."""
    return await change(context, Action.RETRY)


@ROUTES.add("POST", "/v1/jobs/{id}/run-now", Permission.OPERATE, response=JobView)
async def run_job_now(context: RequestContext) -> JobView:
    """Make a delayed job due now."""
    return await change(context, Action.RUN_NOW)


@ROUTES.add("POST", "/v1/jobs/{id}/prioritise", Permission.OPERATE, body=PriorityRequest, response=JobView)
async def prioritise_job(context: RequestContext) -> JobView:
    """Change the priority of a waiting job."""
    return await change(context, Action.PRIORITISE, priority=context.body.priority)


@ROUTES.add("POST", "/v1/jobs/{id}/signal", Permission.OPERATE, body=SignalRequest, response=SignalResponse)
async def signal_job(context: RequestContext) -> SignalResponse:
    """Wake a job that is parked on this signal, or store the signal until it parks."""
    job_id = await require_job(context)
    data = to_json(context.body.data, "signal data", context.dependencies.settings.max_body_bytes)
    return SignalResponse(await context.operations.signal(job_id, context.body.name, data))


@ROUTES.add("DELETE", "/v1/jobs/{id}", Permission.OPERATE, status=204)
async def delete_job(context: RequestContext) -> None:
    """Delete a job that is not running."""
    await context.operations.change_one(Action.DELETE, await require_job(context))
