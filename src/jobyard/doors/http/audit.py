"""Every change through the API is written down here, and admins can read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta
from starlette.responses import Response

from jobyard.doors.http.problems import FieldError, HttpError
from jobyard.doors.http.route import Ask, Routes
from jobyard.service.access import Permission
from jobyard.service.audit import Audit
from jobyard.service.wire_access import AuditPage, audit_view

routes = Routes("audit")


async def audited(ask: Ask, action: str, target: str = "", details: Mapping[str, Any] | None = None) -> None:
    """Write down a change that was made: `await audited(ask, "queue.pause", queue, {"group": group})`."""
    await Audit(ask.door.store).record(ask.principal, action, target, details)


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    page_size: Annotated[int, Meta(ge=1, le=1000)] = 50
    page_token: str | None = None


@routes.add(
    "GET",
    "/v1/audit",
    Permission.ADMINISTER,
    "Who changed what, and when; oldest first.",
    query=AuditQuery,
    answer=AuditPage,
)
async def read_audit(ask: Ask) -> Response:
    if ask.principal.queues or ask.principal.groups:
        raise HttpError(403, "out_of_scope", "A token that is confined to queues or groups cannot read all changes.")
    entries = await Audit(ask.door.store).read(_after(ask.query.page_token), ask.query.page_size)
    full = len(entries) == ask.query.page_size
    token = str(entries[-1].number) if full else UNSET
    page = AuditPage(items=tuple(audit_view(entry) for entry in entries), next_page_token=token)
    headers = {"Link": f'<{_next(ask, token)}>; rel="next"'} if isinstance(token, str) else None
    return Response(msgspec.json.encode(page), headers=headers, media_type="application/json")


def _after(token: str | None) -> int:
    if token is None:
        return 0
    if not token.isascii() or not token.isdigit() or len(token) > 18:
        raise HttpError(
            422,
            "bad_input",
            "This page_token was not given out here.",
            errors=(FieldError("page_token", "Use the next_page_token of an answer."),),
        )
    return int(token)


def _next(ask: Ask, token: str) -> str:
    return str(ask.request.url.replace(scheme="", netloc="").include_query_params(page_token=token))
