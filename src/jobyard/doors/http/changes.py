"""Changes to jobs: one by one, or all that match."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from jobyard.domain.job import State
from jobyard.doors.http.jobs import page_of
from jobyard.doors.http.paging import position, token
from jobyard.doors.http.problems import FieldError, HttpError
from jobyard.doors.http.reach import is_confined, narrowed, note, require_job
from jobyard.doors.http.route import Ask, Routes
from jobyard.executors.python.payload import to_json
from jobyard.ports.store import Action, Changed
from jobyard.service.access import Permission
from jobyard.service.operate import CHANGE_AT_ONCE
from jobyard.service.views import job_view
from jobyard.service.wire import (
    BulkAnswer,
    BulkRequest,
    JobFilter,
    JobView,
    PriorityRequest,
    ReasonRequest,
    SignalAnswer,
    SignalRequest,
)

ROUTES = Routes("jobs")
# The audit log names so many jobs of a change by ids.
NAMED = 20
# What whoever listens is told of a job that waits.
TOLD = (Action.CANCEL, Action.RETRY)
# One call works no longer than this; the rest is for the next.
BULK_SECONDS = 10.0
NOTHING = JobFilter()


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


@ROUTES.add(
    "POST",
    "/v1/jobs/actions",
    Permission.SUBMIT,
    "Change many jobs, by their ids or by the filter of the list; submitters may cancel",
    body=BulkRequest,
    answer=BulkAnswer,
)
async def change_jobs(ask: Ask) -> BulkAnswer:
    request: BulkRequest = ask.body
    if request.action is not Action.CANCEL and not ask.principal.may(Permission.OPERATE):
        raise HttpError(403, "not_allowed", f"The role {ask.principal.role} does not allow to {request.action} jobs.")
    return await change_matching(ask, request)


async def change_matching(ask: Ask, request: BulkRequest, states: tuple[State, ...] = ()) -> BulkAnswer:
    """`states`: only jobs in these are touched."""
    require_choice(request)
    if request.ids is not None and not states and not is_confined(ask.principal):
        # Whoever sees all jobs need not have them looked up first.
        ids = tuple(dict.fromkeys(request.ids))
        done = counted(
            request,
            await ask.door.operate.many(request.action, ids, reason=request.reason, priority=request.priority or 0),
        )
    else:
        done = await walk(ask, request, states)
    if done.changed:
        ask.door.changed_many()
    await note(
        ask,
        f"jobs.{request.action}",
        "",
        changed=done.changed,
        reason=request.reason,
        filter=None if request.filter is None else msgspec.to_builtins(request.filter) or None,
        ids=None if request.ids is None else list(request.ids[:NAMED]),
        ids_given=None if request.ids is None else len(request.ids),
    )
    return done


async def apply(ask: Ask, request: BulkRequest, ids: Sequence[str]) -> Changed:
    priority = request.priority or 0
    return await ask.door.operate.many(request.action, ids, reason=request.reason, priority=priority)


def require_choice(request: BulkRequest) -> None:
    """An empty filter would be every job: too easily meant otherwise."""
    if (request.ids is None) == (request.filter is None):
        wrong = "Give ids or filter, one of them."
        raise HttpError(422, "bad_input", wrong, errors=(FieldError("/ids", wrong), FieldError("/filter", wrong)))
    if request.action is Action.PRIORITISE and request.priority is None:
        wrong = "Which priority? It must be given."
        raise HttpError(422, "bad_input", wrong, errors=(FieldError("/priority", wrong),))
    if request.filter == NOTHING:
        wrong = "The filter needs a condition; for every job list all states."
        raise HttpError(422, "bad_input", wrong, errors=(FieldError("/filter", wrong),))


async def walk(ask: Ask, request: BulkRequest, states: tuple[State, ...]) -> BulkAnswer:
    """Page by page, each changed in a short step of its own, until the limit or the time is reached."""
    where, keep = narrowed(ask.principal, request.filter or NOTHING, states, request.ids)
    cursor = position(request.page_token)
    loop = asyncio.get_running_loop()
    end = loop.time() + BULK_SECONDS
    done, looked_at = Changed((), ()), 0
    while True:
        page = await page_of(ask, where, min(CHANGE_AT_ONCE, request.limit - looked_at), cursor)
        ids = [job.id for job in page.jobs if keep(job)]
        if ids:
            more = await ask.door.operate.many(
                request.action, ids, reason=request.reason, priority=request.priority or 0
            )
            done = Changed(done.changed + more.changed, done.unchanged + more.unchanged)
        looked_at += len(page.jobs)
        cursor = page.cursor
        if cursor is None or looked_at >= request.limit or loop.time() > end:
            return counted(request, done, cursor)


def counted(request: BulkRequest, done: Changed, cursor: str | None = None) -> BulkAnswer:
    """Whoever named jobs is told which; a filter may match too many for that."""
    by_ids = request.ids is not None
    return BulkAnswer(
        changed=len(done.changed),
        unchanged=len(done.unchanged),
        changed_ids=done.changed if by_ids else UNSET,
        unchanged_ids=done.unchanged if by_ids else UNSET,
        next_page_token=token(cursor),
    )
