"""The audit log of changes, readable by administrators."""

from __future__ import annotations

from starlette.responses import Response

from jobyard.api.schemas.access import AuditPage, audit_view
from jobyard.api.schemas.jobs import RequestSchema
from jobyard.domain.access import Permission
from jobyard.operations.audit import START, Position, position_after
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
    after = decoded_position(context.query.page_token)
    entries = await context.operations.audit.read(after, context.query.page_size)
    is_full = len(entries) == context.query.page_size
    following = ".".join(map(str, position_after(after, entries))) if is_full else None
    return page_response(context, AuditPage, map(audit_view, entries), following)


def decoded_position(page_token: str | None) -> Position:
    given = decode_page_token(page_token)
    if given is None:
        return START
    numbers = given.split(".")
    if len(numbers) != len(START) or not all(
        each.isascii() and each.isdigit() and len(each) <= MAX_DIGITS for each in numbers
    ):
        raise invalid_page_token()
    return tuple(map(int, numbers))
