"""Kinds of jobs that the app of the server declares."""

from __future__ import annotations

from jobyard.api.schemas.jobs import KindList
from jobyard.domain.access import Permission
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("kinds")


@ROUTES.add("GET", "/v1/kinds", Permission.READ, response=KindList)
async def list_kinds(context: RequestContext) -> KindList:
    """List the kinds of jobs that the token can submit."""
    factory, principal = context.dependencies.job_factory, context.principal
    known = factory.kinds()
    items = tuple(each for each in known or () if factory.may_submit(principal, each.name))
    return KindList(items=items, any_kind=known is None and not principal.kinds)
