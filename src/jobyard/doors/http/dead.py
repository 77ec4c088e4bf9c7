"""Dead letters: jobs whose attempts are used up, and how they are tried again."""

from __future__ import annotations

from starlette.responses import Response

from jobyard.doors.http.bulk import change_matching
from jobyard.doors.http.jobs import Paged, job_page
from jobyard.doors.http.paging import answer
from jobyard.doors.http.route import Ask, Routes
from jobyard.ports.store import Action
from jobyard.service.access import Permission
from jobyard.service.operate import DEAD
from jobyard.service.wire import BulkAnswer, BulkRequest, JobPage, RedriveRequest

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
