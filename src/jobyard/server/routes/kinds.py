"""Kinds: what the server's app can be asked to do."""

from __future__ import annotations

from jobyard.api.schemas.jobs import KindList
from jobyard.domain.access import Permission
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("kinds")


@ROUTES.add("GET", "/v1/kinds", Permission.READ, "Kinds of job that can be handed in", answer=KindList)
async def list_kinds(context: RequestContext) -> KindList:
    known = context.dependencies.submit.kinds()
    return KindList(items=known or (), any_kind=known is None)
