"""Dead letters: jobs that failed all their attempts, and their redrive."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
from starlette.responses import Response

from jobyard.api.schemas.jobs import BulkRequest, BulkResponse, JobFilter, JobPage, RedriveRequest
from jobyard.api.schemas.operations import DeadLetterGroupPage
from jobyard.domain.access import Permission
from jobyard.domain.job import Job
from jobyard.domain.redaction import redacted_job
from jobyard.operations.commands import DEAD
from jobyard.operations.dead_letters import dead_letter_groups
from jobyard.ports.admin_store import Action
from jobyard.server.authorization import visible_filters
from jobyard.server.pagination import PageToken, decode_page_token, list_name, page_response
from jobyard.server.route import RequestContext, Routes
from jobyard.server.routes.bulk import change_matching
from jobyard.server.routes.jobs import JobListQuery, job_page
from jobyard.server.visible_jobs import matching_jobs, pages_of

ROUTES = Routes("dead letters")
# One response groups at most this many dead letters, and takes at most about this long.
MAX_GROUPED = 2000
GROUP_SECONDS = 0.6
NO_DATA = msgspec.Raw(b"{}")


@ROUTES.add("GET", "/v1/dead-letters", Permission.READ, query=JobListQuery, response=JobPage)
async def list_dead_letters(context: RequestContext) -> Response:
    """List jobs that failed or timed out in all attempts, newest first."""
    return await job_page(context, DEAD)


def without_data(job: Job) -> Job:
    """The job without its large parts, as up to MAX_GROUPED are in memory at once."""
    return msgspec.structs.replace(job, payload=NO_DATA, result=None, progress=None, steps=(), errors=job.errors[-1:])


class DeadLetterGroupQuery(JobFilter, frozen=True, kw_only=True):
    page_token: PageToken | None = None


@ROUTES.add("GET", "/v1/dead-letters/groups", Permission.READ, query=DeadLetterGroupQuery, response=DeadLetterGroupPage)
async def group_dead_letters(context: RequestContext) -> Response:
    """Group the newest dead letters by kind and error, most frequent first."""
    query: DeadLetterGroupQuery = context.query
    filters, is_visible = visible_filters(context.principal, query, DEAD)
    cursor = decode_page_token(query.page_token, list_name(context))
    loop = asyncio.get_running_loop()
    end = loop.time() + GROUP_SECONDS
    reveals = context.principal.may(Permission.REVEAL)
    found: list[Job] = []

    def part_of(job: Job) -> Job:
        return without_data(job) if reveals else redacted_job(without_data(job))

    async for page in pages_of(context.dependencies.store, filters, cursor):
        found += map(part_of, await matching_jobs(page.jobs, is_visible))
        cursor = page.cursor
        if len(found) >= MAX_GROUPED or loop.time() > end:
            break
    groups = dead_letter_groups(found)
    return page_response(context, partial(DeadLetterGroupPage, examined=len(found)), groups, cursor)


@ROUTES.add("POST", "/v1/dead-letters/redrive", Permission.OPERATE, body=RedriveRequest, response=BulkResponse)
async def redrive_dead_letters(context: RequestContext) -> BulkResponse:
    """Retry dead letters, by ids or by a filter."""
    request = BulkRequest(action=Action.RETRY, **msgspec.structs.asdict(context.body))
    return await change_matching(context, request, DEAD)
