"""Every change through the API is written down here, and admins can read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from jobyard.api.schemas.access import AuditPage, audit_view
from jobyard.api.schemas.jobs import Incoming
from jobyard.domain.access import Permission
from jobyard.server.pagination import PageSize, PageToken, answer, bad_token, position, token
from jobyard.server.problems import HttpError
from jobyard.server.route import Ask, Routes

ROUTES = Routes("audit")
MAX_DIGITS = 18


async def audited(ask: Ask, action: str, target: str = "", details: Mapping[str, Any] | None = None) -> None:
    """Write down a change that was made: `await audited(ask, "queue.pause", queue, {"group": group})`."""
    await ask.door.audit.record(ask.principal, action, target, details)


class AuditQuery(Incoming, frozen=True, kw_only=True):
    page_size: PageSize = 50
    page_token: PageToken | None = None


@ROUTES.add(
    "GET",
    "/v1/audit",
    Permission.ADMINISTER,
    "Who changed what, and when; oldest first",
    query=AuditQuery,
    answer=AuditPage,
)
async def read_audit(ask: Ask) -> Response:
    if ask.principal.queues or ask.principal.groups:
        raise HttpError(403, "out_of_scope", "A token that is confined to queues or groups cannot read all changes.")
    after = position(ask.query.page_token) or "0"
    if not after.isascii() or not after.isdigit() or len(after) > MAX_DIGITS:
        raise bad_token()
    entries = await ask.door.audit.read(int(after), ask.query.page_size)
    is_full = len(entries) == ask.query.page_size
    items = tuple(audit_view(entry) for entry in entries)
    return answer(ask, AuditPage(items=items, next_page_token=token(str(entries[-1].number) if is_full else None)))
