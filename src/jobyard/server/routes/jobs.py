"""Jobs: list, look at one, wait for its end, ask why it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from jobyard.api.convert import explanation_view, job_summary, job_view
from jobyard.api.schemas.jobs import (
    MAX_WAIT_SECONDS,
    ExplanationView,
    JobFilter,
    JobPage,
    JobView,
    Name,
)
from jobyard.domain.access import Permission
from jobyard.domain.explain import explain
from jobyard.domain.job import Job, State
from jobyard.ports.admin_store import Filter
from jobyard.server.authorization import JobPredicate, require_job, visible_filters, visible_job
from jobyard.server.dispatch import UNKNOWN
from jobyard.server.pagination import PageSize, PageToken, answer, position, token
from jobyard.server.parsing import wrong
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes
from jobyard.server.visible_jobs import find_visible

ROUTES = Routes("jobs")
# A list that leaves out much of what the store finds looks at so many of its pages before it answers a short one.
LOOKS = 10
MOST_IDS = 100
_encode = msgspec.json.Encoder().encode


class JobListQuery(JobFilter, frozen=True, kw_only=True):
    """The conditions of a list, and which page of it."""

    id: tuple[Name, ...] = ()  # only these; may be repeated
    page_size: PageSize = 50
    page_token: PageToken | None = None


@ROUTES.add("GET", "/v1/jobs", Permission.READ, "List jobs, newest first", query=JobListQuery, answer=JobPage)
async def list_jobs(context: RequestContext) -> Response:
    return answer(context, await job_page(context))


async def job_page(context: RequestContext, states: tuple[State, ...] = ()) -> JobPage:
    query: JobListQuery = context.query
    if len(query.id) > MOST_IDS:
        raise wrong("id", f"It may be given {MOST_IDS} times.")
    within, keep = visible_filters(context.principal, query, states, query.id or None)
    jobs, cursor = await look(context, within, keep, query.page_size, position(query.page_token))
    return JobPage(items=tuple(job_summary(job) for job in jobs), next_page_token=token(cursor))


async def look(
    context: RequestContext, within: Sequence[Filter], keep: JobPredicate, size: int, cursor: str | None
) -> tuple[list[Job], str | None]:
    """Up to `size` jobs that may be seen, from the store's pages."""
    found: list[Job] = []
    for _ in range(LOOKS):
        page = await find_visible(context.dependencies.store, within, size - len(found), cursor)
        found += [job for job in page.jobs if keep(job)]
        cursor = page.cursor
        if cursor is None or len(found) >= size:
            break
    return found, cursor


class WaitQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS)] = 0.0  # seconds


@ROUTES.add(
    "GET",
    "/v1/jobs/{id}",
    Permission.READ,
    "One job; with wait (seconds) the answer comes when it has ended, or after the time",
    query=WaitQuery,
    answer=JobView,
)
async def get_job(context: RequestContext) -> Response:
    job = await visible_job(context)
    if context.query.wait and not job.state.is_final:
        context.dependencies.open.enter(context.principal.id)
        try:
            ended = await wait_for_job_end(context, job.id)
        finally:
            context.dependencies.open.leave(context.principal.id)
        await require_valid_token(context)
        job = ended or await visible_job(context)
    headers = {} if job.state.is_final else {"Retry-After": "1"}
    return Response(_encode(job_view(job)), 200, headers, "application/json")


async def require_valid_token(context: RequestContext) -> None:
    """A token may have been revoked while its holder waited."""
    holds = getattr(context.dependencies.authenticator, "holds", None)
    if holds is not None and not await holds(context.principal.id):
        raise HttpError(401, "no_token", "The token was revoked meanwhile.", headers=UNKNOWN)


async def wait_for_job_end(context: RequestContext, job_id: str) -> Job | None:
    """The job once it has ended; None after the time, or as soon as the server stops."""
    ending = asyncio.ensure_future(context.dependencies.store.wait_for_end(job_id, context.query.wait))
    draining = asyncio.ensure_future(context.dependencies.draining.wait())
    try:
        await asyncio.wait((ending, draining), return_when=asyncio.FIRST_COMPLETED)
        return await ending if ending.done() else None
    finally:
        ending.cancel()
        draining.cancel()


@ROUTES.add("GET", "/v1/jobs/{id}/explain", Permission.READ, "Why the job waits", answer=ExplanationView)
async def explain_job(context: RequestContext) -> ExplanationView:
    job_id = await require_job(context)
    standing = await context.dependencies.store.standing(job_id)
    if context.principal.sees_own_jobs_only:
        # What others run is not theirs to see.
        standing = msgspec.structs.replace(standing, running_ids=())
    return explanation_view(explain(standing))
