"""Actions on one job: cancel, retry, run now, prioritise, signal, delete."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from jobyard.api.convert import job_view, owner_tag
from jobyard.api.schemas.jobs import (
    CloneRequest,
    JobAccepted,
    JobView,
    PriorityRequest,
    ReasonRequest,
    SignalRequest,
    SignalResponse,
)
from jobyard.domain.access import Permission, Principal
from jobyard.domain.job import Job, NewJob
from jobyard.domain.job_options import CheckedOptions
from jobyard.domain.tags import is_reserved
from jobyard.errors import BadInput
from jobyard.executors.python.payload import to_json
from jobyard.executors.sandbox.program import KIND as PROGRAM
from jobyard.operations.job_factory import JobFactory
from jobyard.ports.admin_store import Action
from jobyard.server.authorization import require_job, require_kind, visible_job
from jobyard.server.dispatch import RawJsonResponse
from jobyard.server.parsing import with_pointers
from jobyard.server.problems import HttpError
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
    woke = await context.operations.signal(job_id, context.body.name, data, signal_id=context.body.signal_id)
    return SignalResponse(woke)


@ROUTES.add(
    "POST",
    "/v1/jobs/{id}/clone",
    Permission.OPERATE,
    status=202,
    body=CloneRequest,
    response=JobAccepted,
    problems=(409,),
)
async def clone_job(context: RequestContext) -> Response:
    """Submit a job like this one, with the given differences; its unique key and private payload are not copied."""
    job, request = await visible_job(context), context.body
    require_kind(context, job.kind)
    if job.kind == PROGRAM or job.is_workflow or job.parent_id is not None:
        detail = f"Cannot clone job {job.id}: programs, workflows and child jobs have routes of their own."
        raise HttpError(409, "not_possible", detail)
    new = cloned(context.dependencies.job_factory, job, request, context.principal)
    if not context.principal.reaches(new.queue, new.group, new.kind):
        raise HttpError(403, "out_of_scope", "The queue or the group is out of the scope of the token.")
    [inserted] = await context.dependencies.store.insert([new])
    context.dependencies.enqueued(new)
    await context.operations.record("job.clone", job.id, job=inserted.id)
    accepted = JobAccepted(id=inserted.id, kind=new.kind, queue=new.queue, created=inserted.created)
    return RawJsonResponse(msgspec.json.encode(accepted), 202, (b"location", f"/v1/jobs/{inserted.id}".encode()))


def cloned(factory: JobFactory, job: Job, request: CloneRequest, principal: Principal) -> NewJob:
    options = CheckedOptions(
        queue=job.queue if request.queue is None else request.queue,
        group=job.group if request.group is None else request.group,
        priority=job.priority if request.priority is None else request.priority,
        max_attempts=job.max_attempts,
        timeout_seconds=job.timeout_seconds,
        backoff=job.backoff,
        delay_seconds=request.delay_seconds or 0.0,
        tags=(*(tag for tag in job.tags if not is_reserved(tag)), owner_tag(principal)),
    )
    payload = msgspec.json.decode(job.payload) if request.payload is None else request.payload
    try:
        return factory.new_job_with(job.kind, payload, options)
    except BadInput as error:
        raise with_pointers(error) from None


@ROUTES.add("DELETE", "/v1/jobs/{id}", Permission.OPERATE, status=204)
async def delete_job(context: RequestContext) -> None:
    """Delete a job that is not running."""
    await context.operations.change_one(Action.DELETE, await require_job(context))
