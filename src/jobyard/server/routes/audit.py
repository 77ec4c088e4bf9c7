"""The audit log of changes, readable by administrators."""

from __future__ import annotations

from starlette.responses import Response

from jobyard.api.schemas.access import AuditPage, audit_view
from jobyard.api.schemas.jobs import RequestSchema
from jobyard.domain.access import Permission
from jobyard.server.pagination import PageSize, PageToken, decode_page_token, invalid_page_token, page_response
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("audit")
MAX_DIGITS = 18


class AuditQuery(RequestSchema, frozen=True, kw_only=True):
    page_size: PageSize = 50
    page_token: PageToken | None = None


@ROUTES.add("GET", "/v1/audit", Permission.ADMINISTER, query=AuditQuery, response=AuditPage)
async def read_audit(context: RequestContext) -> Response:
    """List the changes and who made them, oldest first."""
    if context.principal.has_scope:
        detail = "A token that is restricted to queues, groups or kinds cannot read the audit log."
        raise HttpError(403, "out_of_scope", detail)
    after = decode_page_token(context.query.page_token) or "0"
    if not after.isascii() or not after.isdigit() or len(after) > MAX_DIGITS:
        raise invalid_page_token()
    entries = await context.operations.audit.read(int(after), context.query.page_size)
    following = str(entries[-1].number) if len(entries) == context.query.page_size else None
    return page_response(context, AuditPage, map(audit_view, entries), following)
