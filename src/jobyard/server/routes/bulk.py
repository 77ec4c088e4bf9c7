"""Changes to many jobs: those that are named, or all that match."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from jobyard.api.schemas.jobs import BulkRequest, BulkResponse, JobFilter
from jobyard.api.schemas.problems import FieldError
from jobyard.domain.access import Permission
from jobyard.domain.job import State
from jobyard.live_events.poller import jobs_by_id
from jobyard.operations.commands import CHANGE_AT_ONCE
from jobyard.ports.admin_store import Action, Changed
from jobyard.server.authorization import can_see, is_restricted, visible_filters
from jobyard.server.pagination import bad_token, position, token
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes
from jobyard.server.visible_jobs import find_visible

ROUTES = Routes("jobs")
# The audit log names so many jobs of a change by ids.
NAMED = 20
# One call works no longer than this; the rest is for the next.
BULK_SECONDS = 10.0
IDS_AT_ONCE = 200
NOTHING = JobFilter()


@ROUTES.add(
    "POST",
    "/v1/jobs/actions",
    Permission.SUBMIT,
    "Change many jobs, by their ids or by the filter of the list; submitters may cancel",
    body=BulkRequest,
    answer=BulkResponse,
)
async def change_jobs(context: RequestContext) -> BulkResponse:
    request: BulkRequest = context.body
    if request.action is not Action.CANCEL and not context.principal.may(Permission.OPERATE):
        raise HttpError(
            403, "not_allowed", f"The role {context.principal.role} does not allow to {request.action} jobs."
        )
    return await change_matching(context, request)


async def change_matching(
    context: RequestContext, request: BulkRequest, states: tuple[State, ...] = ()
) -> BulkResponse:
    """`states`: only jobs in these are touched."""
    require_choice(request)
    if request.ids is None:
        done = await by_filter(context, request, request.filter or NOTHING, states)
    else:
        done = await by_ids(context, request, tuple(dict.fromkeys(request.ids)), states)
    if done.changed:
        context.dependencies.changed_many()
    await context.audit(
        f"jobs.{request.action}",
        "",
        changed=done.changed,
        reason=request.reason,
        filter=None if request.filter is None else msgspec.to_builtins(request.filter) or None,
        ids=None if request.ids is None else list(request.ids[:NAMED]),
        ids_given=None if request.ids is None else len(request.ids),
    )
    return done


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


async def apply(context: RequestContext, request: BulkRequest, ids: Sequence[str]) -> Changed:
    if not ids:
        return Changed((), ())
    priority = request.priority or 0
    return await context.dependencies.operate.change(request.action, ids, reason=request.reason, priority=priority)


async def by_filter(
    context: RequestContext, request: BulkRequest, asked: JobFilter, states: tuple[State, ...]
) -> BulkResponse:
    """Page by page, each changed in a short step of its own, until the limit or the time is reached."""
    within, keep = visible_filters(context.principal, asked, states)
    cursor = position(request.page_token)
    end = asyncio.get_running_loop().time() + BULK_SECONDS
    changed = unchanged = looked_at = 0
    while True:
        page = await find_visible(
            context.dependencies.store, within, min(CHANGE_AT_ONCE, request.limit - looked_at), cursor
        )
        done = await apply(context, request, [job.id for job in page.jobs if keep(job)])
        changed, unchanged = changed + len(done.changed), unchanged + len(done.unchanged)
        looked_at += len(page.jobs)
        cursor = page.cursor
        if cursor is None or looked_at >= request.limit or asyncio.get_running_loop().time() > end:
            return BulkResponse(changed=changed, unchanged=unchanged, next_page_token=token(cursor))


async def by_ids(
    context: RequestContext, request: BulkRequest, ids: tuple[str, ...], states: tuple[State, ...]
) -> BulkResponse:
    """Whoever named jobs is told what became of each; one that is out of reach is as good as none."""
    first = place = place_in(ids, request.page_token)
    end = asyncio.get_running_loop().time() + BULK_SECONDS
    last = min(len(ids), first + request.limit)
    changed: list[str] = []
    unchanged: list[str] = []
    while place < last and asyncio.get_running_loop().time() <= end:
        some = ids[place : min(last, place + IDS_AT_ONCE)]
        fitting, seen = await in_reach(context, some, states)
        done = await apply(context, request, fitting)
        changed += done.changed
        unchanged += [*done.unchanged, *seen]
        place += len(some)
    known = {*changed, *unchanged}
    missing = tuple(job_id for job_id in ids[first:place] if job_id not in known)
    return BulkResponse(
        changed=len(changed),
        unchanged=len(unchanged),
        not_found=len(missing),
        changed_ids=tuple(changed),
        unchanged_ids=tuple(unchanged),
        not_found_ids=missing,
        next_page_token=token(str(place)) if place < len(ids) else UNSET,
    )


async def in_reach(
    context: RequestContext, ids: tuple[str, ...], states: tuple[State, ...]
) -> tuple[Sequence[str], Sequence[str]]:
    """Those to be changed, and those that are there in another state; who can_see all need not look first."""
    if not states and not is_restricted(context.principal):
        return ids, ()
    jobs = await jobs_by_id(context.dependencies.store, ids)
    seen = [jobs[job_id] for job_id in ids if job_id in jobs and can_see(context.principal, jobs[job_id])]
    fitting = [job.id for job in seen if not states or job.state in states]
    return fitting, [job.id for job in seen if states and job.state not in states]


def place_in(ids: tuple[str, ...], page_token: str | None) -> int:
    given = position(page_token) or "0"
    if not (given.isascii() and given.isdigit() and len(given) < 9 and int(given) < max(1, len(ids))):
        raise bad_token()
    return int(given)
