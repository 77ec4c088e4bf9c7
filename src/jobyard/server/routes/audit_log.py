"""The audit log of changes, readable by administrators."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from starlette.responses import Response

from jobyard.api.schemas.access import AuditPage, audit_view
from jobyard.api.schemas.jobs import Name, RequestSchema
from jobyard.domain.access import AuditEntry, Permission
from jobyard.operations.audit_log import START, Position, is_about, position_after
from jobyard.server.pagination import (
    PageSize,
    PageToken,
    decode_page_token,
    encode_page_token,
    invalid_page_token,
    list_name,
    page_response,
)
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes

ROUTES = Routes("audit")
MAX_DIGITS = 18
TARGET_STRETCH = 1000
_encode = msgspec.json.Encoder().encode


class AuditQuery(RequestSchema, frozen=True, kw_only=True):
    newest: bool = False  # newest first
    target: Name | None = None  # only changes to this; a short page may have a token
    page_size: PageSize = 50
    page_token: PageToken | None = None


@ROUTES.add("GET", "/v1/audit", Permission.ADMINISTER, query=AuditQuery, response=AuditPage)
async def read_audit(context: RequestContext) -> Response:
    """List the changes and who made them, oldest first; with newest=true, newest first."""
    if context.principal.has_scope:
        detail = "A token that is restricted to queues, groups or kinds cannot read the audit log."
        raise HttpError(403, "out_of_scope", detail)
    if context.query.newest:
        return await newest_entries(context)
    after = decoded_position(decode_page_token(context.query.page_token, list_name(context)))
    entries = await context.operations.audit.read(after, context.query.page_size)
    is_full = len(entries) == context.query.page_size
    following = ".".join(map(str, position_after(after, entries))) if is_full else None
    return page_response(context, AuditPage, map(audit_view, matching(context, entries)), following)


async def newest_entries(context: RequestContext) -> Response:
    token = decode_page_token(context.query.page_token, list_name(context, "newest"))
    before = None if token is None else decoded_position(token)
    # The entries of one target are looked for in a bounded stretch per page.
    size = context.query.page_size if context.query.target is None else TARGET_STRETCH
    entries, ends = await context.operations.audit.newest(size, before)
    found = matching(context, entries)
    following = None
    if len(found) > context.query.page_size:
        found = found[: context.query.page_size]
        following = position_after(ends, entries[: entries.index(found[-1]) + 1])
    elif len(entries) == size:
        following = position_after(ends, entries)
    cursor = None if following is None else ".".join(map(str, following))
    page = AuditPage(
        items=tuple(map(audit_view, found)),
        next_page_token=encode_page_token(cursor, list_name(context, "newest")),
    )
    return Response(_encode(page), media_type="application/json")


def matching(context: RequestContext, entries: Iterable[AuditEntry]) -> list[AuditEntry]:
    target = context.query.target
    return [each for each in entries if target is None or is_about(each, target)]


def decoded_position(given: str | None) -> Position:
    if given is None:
        return START
    numbers = given.split(".")
    if len(numbers) != len(START) or not all(
        each.isascii() and each.isdigit() and len(each) <= MAX_DIGITS for each in numbers
    ):
        raise invalid_page_token()
    return tuple(map(int, numbers))
