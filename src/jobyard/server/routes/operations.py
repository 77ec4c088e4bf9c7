"""Bulk operations: start, follow and cancel them."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from jobyard.api.schemas.jobs import BulkRequest
from jobyard.api.schemas.operations import BulkOperationList, BulkOperationView, OperationRequest
from jobyard.domain.access import Permission
from jobyard.domain.redaction import HIDDEN, secret_conditions
from jobyard.server.authorization import visible_filters
from jobyard.server.bulk_operations import OperationRecord, is_operation_id
from jobyard.server.dispatch import RawJsonResponse
from jobyard.server.job_counts import counted_by_state
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes
from jobyard.server.routes.bulk import require_choice

ROUTES = Routes("operations")
_encode = msgspec.json.Encoder().encode


def can_see_operation(context: RequestContext, record: OperationRecord) -> bool:
    """A restricted token sees only its own: a filter may name what is out of its scope."""
    return not context.principal.has_scope or record.principal.id == context.principal.id


async def visible_operation(context: RequestContext) -> OperationRecord:
    operation_id = context.path["operation_id"]
    record = None
    if is_operation_id(operation_id):
        record = await context.dependencies.bulk_operations.get(operation_id)
    if record is None or not can_see_operation(context, record):
        raise HttpError(404, "operation_not_found", f"Operation {operation_id} not found. It is kept for a day.")
    return record


def shown(context: RequestContext, record: OperationRecord) -> BulkOperationView:
    """The operation without the secrets that its filter may name, if the principal may not reveal them."""
    view = record.view()
    if view.filter is None or context.principal.may(Permission.REVEAL):
        return view
    text, secret = view.filter.text, secret_conditions(view.filter.payload)
    payload = tuple(f"{each.partition(':')[0]}:{HIDDEN}" if each in secret else each for each in view.filter.payload)
    shown_filter = msgspec.structs.replace(view.filter, text=None if text is None else HIDDEN, payload=payload)
    return msgspec.structs.replace(view, filter=shown_filter)


@ROUTES.add(
    "POST",
    "/v1/operations",
    Permission.OPERATE,
    status=202,
    body=OperationRequest,
    response=BulkOperationView,
)
async def start_operation(context: RequestContext) -> Response:
    """Apply an action to all jobs that match, in the background, with its progress."""
    request: OperationRequest = context.body
    require_choice(BulkRequest(**{name: getattr(request, name) for name in request.__struct_fields__}))
    if request.ids is not None:
        matching, is_capped = len(request.ids), False
    else:
        assert request.filter is not None
        filters, is_visible = visible_filters(context.principal, request.filter)
        counts = await counted_by_state(context.dependencies.store, request.filter, filters, is_visible)
        matching = sum(counts.counts.values())
        is_capped = not counts.is_complete or any(number >= counts.cap for number in counts.counts.values())
    record = await context.dependencies.bulk_operations.begin(
        context.principal,
        action=request.action,
        filter=request.filter,
        ids=None if request.ids is None else tuple(dict.fromkeys(request.ids)),
        reason=request.reason,
        priority=request.priority or 0,
        matching=matching,
        matching_capped=is_capped,
    )
    return RawJsonResponse(_encode(record.view()), 202, (b"location", f"/v1/operations/{record.id}".encode()))


@ROUTES.add("GET", "/v1/operations", Permission.WATCH, response=BulkOperationList)
async def list_operations(context: RequestContext) -> BulkOperationList:
    """List the operations of the last day, newest first."""
    found = await context.dependencies.bulk_operations.newest()
    return BulkOperationList(tuple(shown(context, record) for record in found if can_see_operation(context, record)))


@ROUTES.add("GET", "/v1/operations/{operation_id}", Permission.WATCH, response=BulkOperationView)
async def get_operation(context: RequestContext) -> BulkOperationView:
    """Get an operation with its progress."""
    return shown(context, await visible_operation(context))


@ROUTES.add("POST", "/v1/operations/{operation_id}/cancel", Permission.OPERATE, response=BulkOperationView)
async def cancel_operation(context: RequestContext) -> BulkOperationView:
    """Cancel an operation after its present step; what it has changed stays changed."""
    record = await visible_operation(context)
    cancelled = await context.dependencies.bulk_operations.cancel(context.principal, record.id)
    return (cancelled or record).view()
