"""Kinds: what the server's app can be asked to do."""

from __future__ import annotations

from jobyard.doors.http.route import Ask, Routes
from jobyard.service.access import Permission
from jobyard.service.wire import KindList

ROUTES = Routes("kinds")


@ROUTES.add("GET", "/v1/kinds", Permission.READ, "Kinds of job that can be handed in", answer=KindList)
async def list_kinds(ask: Ask) -> KindList:
    known = ask.door.submit.kinds()
    return KindList(items=known or (), any_kind=known is None)
