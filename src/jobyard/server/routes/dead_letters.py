"""Dead letters: jobs whose attempts are used up, and how they are tried again."""

from __future__ import annotations

from starlette.responses import Response

from jobyard.api.schemas.jobs import BulkAnswer, BulkRequest, JobPage, RedriveRequest
from jobyard.domain.access import Permission
from jobyard.operations.commands import DEAD
from jobyard.ports.admin_store import Action
from jobyard.server.pagination import answer
from jobyard.server.route import Ask, Routes
from jobyard.server.routes.bulk import change_matching
from jobyard.server.routes.jobs import Paged, job_page

ROUTES = Routes("dead letters")


@ROUTES.add(
    "GET",
    "/v1/dead-letters",
    Permission.READ,
    "List jobs that failed or timed out for good, newest first",
    query=Paged,
    answer=JobPage,
)
async def list_dead_letters(ask: Ask) -> Response:
    return answer(ask, await job_page(ask, DEAD))


@ROUTES.add(
    "POST",
    "/v1/dead-letters/redrive",
    Permission.OPERATE,
    "Try dead letters again, by their ids or by a filter",
    body=RedriveRequest,
    answer=BulkAnswer,
)
async def redrive_dead_letters(ask: Ask) -> BulkAnswer:
    asked: RedriveRequest = ask.body
    request = BulkRequest(
        action=Action.RETRY, ids=asked.ids, filter=asked.filter, limit=asked.limit, page_token=asked.page_token
    )
    return await change_matching(ask, request, DEAD)
