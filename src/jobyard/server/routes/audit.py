"""Every change through the API is written down here, and admins can read it."""

from __future__ import annotations

from starlette.responses import Response

from jobyard.api.schemas.access import AuditPage, audit_view
from jobyard.api.schemas.jobs import RequestSchema
from jobyard.domain.access import Permission
from jobyard.server.pagination import PageSize, PageToken, answer, bad_token, position, token
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("audit")
MAX_DIGITS = 18


class AuditQuery(RequestSchema, frozen=True, kw_only=True):
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
async def read_audit(context: RequestContext) -> Response:
    if context.principal.queues or context.principal.groups:
        raise HttpError(403, "out_of_scope", "A token that is confined to queues or groups cannot read all changes.")
    after = position(context.query.page_token) or "0"
    if not after.isascii() or not after.isdigit() or len(after) > MAX_DIGITS:
        raise bad_token()
    entries = await context.dependencies.audit.read(int(after), context.query.page_size)
    is_full = len(entries) == context.query.page_size
    items = tuple(audit_view(entry) for entry in entries)
    return answer(context, AuditPage(items=items, next_page_token=token(str(entries[-1].number) if is_full else None)))
