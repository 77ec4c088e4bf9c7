"""Bulk actions on jobs, by ids or by a filter."""

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
from jobyard.server.pagination import decode_page_token, encode_page_token, invalid_page_token, list_name
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes
from jobyard.server.visible_jobs import FIRST_STEP, find_visible, fitting_step, job_bytes, matching_jobs

ROUTES = Routes("jobs")
# A call stops after this long and returns a page token; otherwise clients and proxies time out.
BULK_SECONDS = 10.0
IDS_PER_BATCH = 200
EMPTY_FILTER = JobFilter()


@ROUTES.add("POST", "/v1/jobs/actions", Permission.SUBMIT, body=BulkRequest, response=BulkResponse)
async def change_jobs(context: RequestContext) -> BulkResponse:
    """Apply an action to many jobs, by ids or by a filter; submitters may only cancel."""
    request: BulkRequest = context.body
    if request.action is not Action.CANCEL and not context.principal.may(Permission.OPERATE):
        raise HttpError(403, "not_allowed", f"The role {context.principal.role} cannot {request.action} jobs.")
    return await change_matching(context, request)


async def change_matching(
    context: RequestContext, request: BulkRequest, states: tuple[State, ...] = ()
) -> BulkResponse:
    """`states`: change only jobs in these states."""
    require_choice(request)
    if request.ids is None:
        done = await by_filter(context, request, request.filter or EMPTY_FILTER, states)
    else:
        done = await by_ids(context, request, tuple(dict.fromkeys(request.ids)), states)
    if done.changed:
        context.dependencies.changed_many()
    where = msgspec.to_builtins(request.filter)
    await context.operations.record_bulk(
        request.action, done.changed, request.reason, where=where, ids=request.ids, priority=request.priority
    )
    return done


def require_choice(request: BulkRequest) -> None:
    """Reject a request without ids or conditions: it would change every job, which is rarely meant."""
    if (request.ids is None) == (request.filter is None):
        wrong = "Give either ids or filter."
        raise HttpError(422, "bad_input", wrong, errors=(FieldError("/ids", wrong), FieldError("/filter", wrong)))
    if request.action is Action.PRIORITISE and request.priority is None:
        wrong = "The action prioritise needs a priority."
        raise HttpError(422, "bad_input", wrong, errors=(FieldError("/priority", wrong),))
    if request.filter == EMPTY_FILTER:
        wrong = "The filter needs at least one condition. To select every job, list all states."
        raise HttpError(422, "bad_input", wrong, errors=(FieldError("/filter", wrong),))


async def apply(context: RequestContext, request: BulkRequest, ids: Sequence[str]) -> Changed:
    if not ids:
        return Changed((), ())
    priority = request.priority or 0
    return await context.operations.commands.change(request.action, ids, reason=request.reason, priority=priority)


async def by_filter(
    context: RequestContext, request: BulkRequest, requested: JobFilter, states: tuple[State, ...]
) -> BulkResponse:
    """Change page by page, in short transactions, until the limit or the deadline is reached."""
    filters, is_visible = visible_filters(context.principal, requested, states)
    of_list = list_name(context, "by filter")
    cursor = decode_page_token(request.page_token, of_list)
    end = asyncio.get_running_loop().time() + BULK_SECONDS
    changed = unchanged = looked_at = 0
    step = FIRST_STEP
    while True:
        step = min(step, request.limit - looked_at)
        page = await find_visible(context.dependencies.store, filters, step, cursor)
        done = await apply(context, request, [job.id for job in await matching_jobs(page.jobs, is_visible)])
        changed, unchanged = changed + len(done.changed), unchanged + len(done.unchanged)
        looked_at += len(page.jobs)
        cursor, size = page.cursor, sum(map(job_bytes, page.jobs))
        step = fitting_step(len(page.jobs), size, most=CHANGE_AT_ONCE)
        if cursor is None or looked_at >= request.limit or asyncio.get_running_loop().time() > end:
            return BulkResponse(
                changed=changed, unchanged=unchanged, next_page_token=encode_page_token(cursor, of_list)
            )


async def by_ids(
    context: RequestContext, request: BulkRequest, ids: tuple[str, ...], states: tuple[State, ...]
) -> BulkResponse:
    """Change jobs by id, and report each as changed, unchanged or not found; invisible jobs are not found."""
    of_list = list_name(context, "by ids")
    first = position = position_in(ids, decode_page_token(request.page_token, of_list))
    end = asyncio.get_running_loop().time() + BULK_SECONDS
    last = min(len(ids), first + request.limit)
    changed: list[str] = []
    unchanged: list[str] = []
    while position < last and asyncio.get_running_loop().time() <= end:
        some = ids[position : min(last, position + IDS_PER_BATCH)]
        matching, others = await partition_visible(context, some, states)
        done = await apply(context, request, matching)
        changed += done.changed
        unchanged += [*done.unchanged, *others]
        position += len(some)
    known = {*changed, *unchanged}
    missing = tuple(job_id for job_id in ids[first:position] if job_id not in known)
    return BulkResponse(
        changed=len(changed),
        unchanged=len(unchanged),
        not_found=len(missing),
        changed_ids=tuple(changed),
        unchanged_ids=tuple(unchanged),
        not_found_ids=missing,
        next_page_token=encode_page_token(str(position), of_list) if position < len(ids) else UNSET,
    )


async def partition_visible(
    context: RequestContext, ids: tuple[str, ...], states: tuple[State, ...]
) -> tuple[Sequence[str], Sequence[str]]:
    """Ids of visible jobs in these states, and of those in others. Without restrictions no job is read."""
    if not states and not is_restricted(context.principal):
        return ids, ()
    jobs = await jobs_by_id(context.dependencies.store, ids)
    visible = [jobs[job_id] for job_id in ids if job_id in jobs and can_see(context.principal, jobs[job_id])]
    matching = [job.id for job in visible if not states or job.state in states]
    return matching, [job.id for job in visible if states and job.state not in states]


def position_in(ids: tuple[str, ...], cursor: str | None) -> int:
    given = cursor or "0"
    if not (given.isascii() and given.isdigit() and len(given) < 9 and int(given) < max(1, len(ids))):
        raise invalid_page_token()
    return int(given)
