"""Dead letters: jobs whose attempts are used up, and how they are tried again."""

from __future__ import annotations

from starlette.responses import Response

from jobyard.api.schemas.jobs import BulkRequest, BulkResponse, JobPage, RedriveRequest
from jobyard.domain.access import Permission
from jobyard.operations.commands import DEAD
from jobyard.ports.admin_store import Action
from jobyard.server.pagination import answer
from jobyard.server.route import RequestContext, Routes
from jobyard.server.routes.bulk import change_matching
from jobyard.server.routes.jobs import JobListQuery, job_page

ROUTES = Routes("dead letters")


@ROUTES.add(
    "GET",
    "/v1/dead-letters",
    Permission.READ,
    "List jobs that failed or timed out for good, newest first",
    query=JobListQuery,
    answer=JobPage,
)
async def list_dead_letters(context: RequestContext) -> Response:
    return answer(context, await job_page(context, DEAD))


@ROUTES.add(
    "POST",
    "/v1/dead-letters/redrive",
    Permission.OPERATE,
    "Try dead letters again, by their ids or by a filter",
    body=RedriveRequest,
    answer=BulkResponse,
)
async def redrive_dead_letters(context: RequestContext) -> BulkResponse:
    asked: RedriveRequest = context.body
    request = BulkRequest(
        action=Action.RETRY, ids=asked.ids, filter=asked.filter, limit=asked.limit, page_token=asked.page_token
    )
    return await change_matching(context, request, DEAD)
