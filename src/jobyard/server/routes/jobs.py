"""Jobs: list, get, wait for the end, explain. `submit.py` creates them, `job_actions.py` and `bulk.py` change them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from jobyard.api.convert import explanation_view, job_summary, job_view
from jobyard.api.schemas.jobs import MAX_WAIT_SECONDS, ExplanationView, JobCounts, JobFilter, JobPage, JobView, Name
from jobyard.domain.access import Permission
from jobyard.domain.job import Job, State
from jobyard.domain.redaction import redacted
from jobyard.operations.explanations import explain_position
from jobyard.ports.admin_store import Filter
from jobyard.server.authorization import require_job, shown_job, visible_filters, visible_job
from jobyard.server.job_counts import counted_by_state
from jobyard.server.pagination import PageSize, PageToken, decode_page_token, list_name, page_response
from jobyard.server.parsing import invalid_parameter
from jobyard.server.problems import invalid_token
from jobyard.server.route import RequestContext, Routes
from jobyard.server.visible_jobs import (
    FIRST_STEP,
    MAX_PAGE_BYTES,
    JobPredicate,
    find_visible,
    fitting_step,
    job_bytes,
    matching_jobs,
)

ROUTES = Routes("jobs")
# Store pages read for one response when most jobs are filtered out; the response may then be short.
MAX_PAGES = 10
# A search that finds little returns after this long with a page token; the caller decides whether to continue.
SEARCH_SECONDS = 0.3
MAX_IDS = 100
_encode = msgspec.json.Encoder().encode


class JobListQuery(JobFilter, frozen=True, kw_only=True):
    """The filter and the page of a list."""

    id: tuple[Name, ...] = ()  # may be repeated
    mine: bool = False  # only jobs that this token submitted
    page_size: PageSize = 50
    page_token: PageToken | None = None


@ROUTES.add("GET", "/v1/jobs", Permission.READ, query=JobListQuery, response=JobPage)
async def list_jobs(context: RequestContext) -> Response:
    """List jobs, newest first."""
    return await job_page(context)


async def job_page(context: RequestContext, states: tuple[State, ...] = ()) -> Response:
    query: JobListQuery = context.query
    if len(query.id) > MAX_IDS:
        raise invalid_parameter("id", f"It may be given at most {MAX_IDS} times.")
    filters, is_visible = visible_filters(context.principal, query, states, query.id or None, mine=query.mine)
    after = decode_page_token(query.page_token, list_name(context))
    jobs, cursor = await visible_jobs(context, filters, is_visible, query.page_size, after)
    shown = [job_summary(await shown_job(context.principal, job)) for job in jobs]
    return page_response(context, JobPage, shown, cursor)


async def visible_jobs(
    context: RequestContext, filters: Sequence[Filter], is_visible: JobPredicate, size: int, cursor: str | None
) -> tuple[list[Job], str | None]:
    """Up to `size` visible jobs, fewer if they are large, and the cursor of the next page."""
    found: list[Job] = []
    end = asyncio.get_running_loop().time() + SEARCH_SECONDS
    read = bytes_found = 0
    step = FIRST_STEP
    while read < size * MAX_PAGES:
        step = min(step, size - len(found))
        page = await find_visible(context.dependencies.store, filters, step, cursor)
        bytes_found += sum(map(job_bytes, page.jobs))
        if bytes_found > MAX_PAGE_BYTES and found:
            return found, cursor  # the next page starts with this step
        if bytes_found > MAX_PAGE_BYTES and step > 1:
            step, bytes_found = 1, 0
            continue
        found += await matching_jobs(page.jobs, is_visible)
        read, cursor = read + step, page.cursor
        room = MAX_PAGE_BYTES - bytes_found
        if cursor is None or len(found) >= size or room <= 0 or asyncio.get_running_loop().time() > end:
            break
        step = fitting_step(read, bytes_found, room)
    return found, cursor


class WaitQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS)] = 0.0  # seconds


class CountQuery(JobFilter, frozen=True, kw_only=True):
    mine: bool = False  # only jobs that this token submitted


@ROUTES.add("GET", "/v1/jobs/counts", Permission.READ, query=CountQuery, response=JobCounts)
async def count_jobs(context: RequestContext) -> JobCounts:
    """Count the jobs of each state that match, up to a cap; slow searches end early and say so."""
    query: CountQuery = context.query
    filters, is_visible = visible_filters(context.principal, query, mine=query.mine)
    return await counted_by_state(context.dependencies.store, query, filters, is_visible)


@ROUTES.add("GET", "/v1/jobs/{id}", Permission.READ, query=WaitQuery, response=JobView)
async def get_job(context: RequestContext) -> Response:
    """Get a job; with wait (seconds) the response comes when the job has ended or the time is over."""
    job = await visible_job(context)
    if context.query.wait and not job.state.is_final:
        job = await wait_for_end(context, job.id) or await visible_job(context)
    headers = {} if job.state.is_final else {"Retry-After": "1"}
    return Response(_encode(job_view(await shown_job(context.principal, job))), 200, headers, "application/json")


async def wait_for_end(context: RequestContext, job_id: str) -> Job | None:
    """The job once it has ended; None when the time is over or the server stops. Rejects a token revoked meanwhile."""
    dependencies, principal_id = context.dependencies, context.principal.id
    dependencies.open_requests.acquire(principal_id)
    ending = asyncio.ensure_future(dependencies.store.wait_for_end(job_id, context.query.wait))
    draining = asyncio.ensure_future(dependencies.draining.wait())
    try:
        await asyncio.wait((ending, draining), return_when=asyncio.FIRST_COMPLETED)
        job = await ending if ending.done() else None
    finally:
        ending.cancel()
        draining.cancel()
        dependencies.open_requests.release(principal_id)
    if not await dependencies.authenticator.is_valid(principal_id):
        raise invalid_token("The token was revoked during the request.")
    return job


@ROUTES.add("GET", "/v1/jobs/{id}/explain", Permission.READ, response=ExplanationView)
async def explain_job(context: RequestContext) -> ExplanationView:
    """Explain why a job waits."""
    job_id = await require_job(context)
    store, principal = context.dependencies.store, context.principal
    position = await store.position(job_id)
    if principal.sees_own_jobs_only:
        # A submitter must not see the jobs of others.
        position = msgspec.structs.replace(position, running_ids=())
    names_others = not principal.sees_own_jobs_only and not principal.has_scope
    view = explanation_view(await explain_position(store, position, names_others=names_others))
    if principal.may(Permission.REVEAL):
        return view
    shown: ExplanationView = redacted(view)
    return shown
