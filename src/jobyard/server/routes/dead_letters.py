"""Dead letters: jobs that failed all their attempts, and their redrive."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from jobyard.api.schemas.jobs import BulkRequest, BulkResponse, JobPage, RedriveRequest
from jobyard.domain.access import Permission
from jobyard.operations.commands import DEAD
from jobyard.ports.admin_store import Action
from jobyard.server.route import RequestContext, Routes
from jobyard.server.routes.bulk import change_matching
from jobyard.server.routes.jobs import JobListQuery, job_page

ROUTES = Routes("dead letters")


@ROUTES.add("GET", "/v1/dead-letters", Permission.READ, query=JobListQuery, response=JobPage)
async def list_dead_letters(context: RequestContext) -> Response:
    """List jobs that failed or timed out in all attempts, newest first."""
    return await job_page(context, DEAD)


@ROUTES.add("POST", "/v1/dead-letters/redrive", Permission.OPERATE, body=RedriveRequest, response=BulkResponse)
async def redrive_dead_letters(context: RequestContext) -> BulkResponse:
    """Retry dead letters, by ids or by a filter."""
    request = BulkRequest(action=Action.RETRY, **msgspec.structs.asdict(context.body))
    return await change_matching(context, request, DEAD)
