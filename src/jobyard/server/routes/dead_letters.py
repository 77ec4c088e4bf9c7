"""Dead letters: jobs that failed all their attempts, and their redrive."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
from starlette.responses import Response

from jobyard.api.schemas.jobs import BulkRequest, BulkResponse, JobFilter, JobPage, RedriveRequest
from jobyard.api.schemas.operations import DeadLetterGroupPage
from jobyard.domain.access import Permission
from jobyard.operations.commands import DEAD
from jobyard.operations.dead_letters import dead_letter_groups
from jobyard.ports.admin_store import Action
from jobyard.server.authorization import visible_filters
from jobyard.server.pagination import PageToken, decode_page_token, list_name, page_response
from jobyard.server.route import RequestContext, Routes
from jobyard.server.routes.bulk import change_matching
from jobyard.server.routes.jobs import JobListQuery, job_page
from jobyard.server.visible_jobs import find_visible

ROUTES = Routes("dead letters")
# One response groups at most this many dead letters, and takes at most about this long.
MAX_GROUPED = 2000
GROUP_SECONDS = 0.6
PAGE = 250


@ROUTES.add("GET", "/v1/dead-letters", Permission.READ, query=JobListQuery, response=JobPage)
async def list_dead_letters(context: RequestContext) -> Response:
    """List jobs that failed or timed out in all attempts, newest first."""
    return await job_page(context, DEAD)


class DeadLetterGroupQuery(JobFilter, frozen=True, kw_only=True):
    page_token: PageToken | None = None


@ROUTES.add("GET", "/v1/dead-letters/groups", Permission.READ, query=DeadLetterGroupQuery, response=DeadLetterGroupPage)
async def group_dead_letters(context: RequestContext) -> Response:
    """Group the newest dead letters by kind and error, most frequent first."""
    query: DeadLetterGroupQuery = context.query
    filters, is_visible = visible_filters(context.principal, query, DEAD)
    cursor = decode_page_token(query.page_token, list_name(context))
    loop = asyncio.get_running_loop()
    end, found = loop.time() + GROUP_SECONDS, []
    while True:
        page = await find_visible(context.dependencies.store, filters, PAGE, cursor)
        found += [job for job in page.jobs if is_visible(job)]
        cursor = page.cursor
        if cursor is None or len(found) >= MAX_GROUPED or loop.time() > end:
            break
    groups = dead_letter_groups(found)
    return page_response(context, partial(DeadLetterGroupPage, examined=len(found)), groups, cursor)


@ROUTES.add("POST", "/v1/dead-letters/redrive", Permission.OPERATE, body=RedriveRequest, response=BulkResponse)
async def redrive_dead_letters(context: RequestContext) -> BulkResponse:
    """Retry dead letters, by ids or by a filter."""
    request = BulkRequest(action=Action.RETRY, **msgspec.structs.asdict(context.body))
    return await change_matching(context, request, DEAD)
