"""The history of a workflow: the operations that it has recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from starlette.responses import Response

from jobyard.api.schemas.jobs import RequestSchema
from jobyard.api.schemas.workflows import OperationView, WorkflowHistoryPage
from jobyard.domain.access import Permission
from jobyard.domain.redaction import redacted
from jobyard.operations.workflow_history import operation_views
from jobyard.server.authorization import visible_job
from jobyard.server.pagination import (
    PageSize,
    PageToken,
    decode_page_token,
    invalid_page_token,
    list_name,
    page_response,
)
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("jobs")


class WorkflowHistoryQuery(RequestSchema, frozen=True, kw_only=True):
    results: bool = False  # with what the operations returned
    page_size: PageSize = 50
    page_token: PageToken | None = None


@ROUTES.add("GET", "/v1/jobs/{id}/history", Permission.READ, query=WorkflowHistoryQuery, response=WorkflowHistoryPage)
async def get_history(context: RequestContext) -> Response:
    """List what a workflow has recorded, oldest first; results only if they are wanted."""
    query: WorkflowHistoryQuery = context.query
    job = await visible_job(context)
    token = decode_page_token(query.page_token, list_name(context))
    if token is not None and not token.isdecimal():
        raise invalid_page_token()
    views, following = await operation_views(
        context.dependencies.store,
        job,
        after=int(token or 0),
        limit=query.page_size,
        with_results=query.results,
    )
    if not context.principal.may(Permission.REVEAL):
        views = await asyncio.to_thread(without_secrets, views)
    return page_response(context, WorkflowHistoryPage, views, None if following is None else str(following))


def without_secrets(views: Iterable[OperationView]) -> list[OperationView]:
    return list(map(redacted, views))
