"""Kinds of jobs that the app of the server declares."""

from __future__ import annotations

from jobyard.api.schemas.jobs import KindList
from jobyard.domain.access import Permission
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("kinds")


@ROUTES.add("GET", "/v1/kinds", Permission.READ, response=KindList)
async def list_kinds(context: RequestContext) -> KindList:
    """List the kinds of jobs that can be submitted."""
    known = context.dependencies.job_factory.kinds()
    return KindList(items=known or (), any_kind=known is None)
