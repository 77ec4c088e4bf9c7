"""`/api/v2/workflows`: run workflow files, follow and cancel their runs. Every response has an envelope."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from jobyard.api.schemas.jobs import ReasonRequest
from jobyard.api.schemas.workflows import (
    WorkflowAccepted,
    WorkflowAcceptedEnvelope,
    WorkflowList,
    WorkflowListEnvelope,
    WorkflowRequest,
    WorkflowRunEnvelope,
    WorkflowRunView,
)
from jobyard.domain.access import Permission
from jobyard.domain.redaction import redacted
from jobyard.errors import BadInput
from jobyard.executors.workflow.file_records import FILE_WORKFLOW
from jobyard.operations.submit import prepare_run, store_one
from jobyard.operations.workflow_catalog import may_run
from jobyard.operations.workflow_runs import load_run, payload_of, run_view, workflow_view
from jobyard.ports.admin_store import Action
from jobyard.server.authorization import visible_job
from jobyard.server.dispatch import RawJsonResponse
from jobyard.server.idempotency import KEY, idempotency_key
from jobyard.server.parsing import with_pointers
from jobyard.server.problems import HttpError
from jobyard.server.route import RequestContext, Routes
from jobyard.server.routes.submit import REPLAYED, encode, require_scope

ROUTES = Routes("workflows")


@ROUTES.add("GET", "/api/v2/workflows", Permission.READ, response=WorkflowListEnvelope)
async def list_workflows(context: RequestContext) -> WorkflowListEnvelope:
    """List the workflow files of the server."""
    definitions = context.dependencies.workflows.definitions
    found = (definitions[name] for name in sorted(definitions) if may_run(context.principal))
    return WorkflowListEnvelope(data=WorkflowList(workflows=tuple(map(workflow_view, found))))


@ROUTES.add(
    "POST",
    "/api/v2/workflows/execute",
    Permission.SUBMIT,
    status=202,
    body=WorkflowRequest,
    response=WorkflowAcceptedEnvelope,
    headers=(KEY,),
    problems=(404, 409),
)
async def execute_workflow(context: RequestContext) -> Response:
    """Run a workflow file: its job is queued on the platform of the request, of the params, or of the file."""
    key = idempotency_key(context.request)
    if not may_run(context.principal):
        detail = f'Cannot run workflows: the token is restricted to other kinds than "{FILE_WORKFLOW}".'
        raise HttpError(403, "out_of_scope", detail)
    try:
        prepared = prepare_run(context.dependencies.workflows, context.principal, context.body, key)
    except BadInput as error:
        raise with_pointers(error) from None
    require_scope(context.principal, prepared)
    stored = await store_one(context.dependencies.store, prepared)
    if stored.inserted.created:
        context.dependencies.enqueued(prepared.job)
    body = encode(WorkflowAcceptedEnvelope(data=WorkflowAccepted(job_id=stored.inserted.id)))
    location = (b"location", f"/api/v2/workflows/{stored.inserted.id}".encode())
    return RawJsonResponse(body, 202, location, REPLAYED) if stored.is_replay else RawJsonResponse(body, 202, location)


@ROUTES.add("GET", "/api/v2/workflows/{id}", Permission.READ, response=WorkflowRunEnvelope)
async def get_workflow_run(context: RequestContext) -> WorkflowRunEnvelope:
    """Get a run: its state, the states and times of its steps, its progress and its output."""
    return WorkflowRunEnvelope(data=await _view(context))


@ROUTES.add(
    "POST", "/api/v2/workflows/{id}/cancel", Permission.SUBMIT, body=ReasonRequest, response=WorkflowRunEnvelope
)
async def cancel_workflow_run(context: RequestContext) -> WorkflowRunEnvelope:
    """Cancel a run: no further step starts, and running steps are stopped."""
    job = await visible_job(context)
    payload_of(job)
    await context.operations.change_one(Action.CANCEL, job.id, reason=context.body.reason)
    context.dependencies.changed(await visible_job(context))
    return WorkflowRunEnvelope(data=await _view(context))


async def _view(context: RequestContext) -> WorkflowRunView:
    store = context.dependencies.store
    view = run_view(await load_run(store, await visible_job(context)), await store.now())
    return view if context.principal.may(Permission.REVEAL) else await asyncio.to_thread(_without_secrets, view)


def _without_secrets(view: WorkflowRunView) -> WorkflowRunView:
    # The states of the steps depend on the params, so these are redacted last.
    found: WorkflowRunView = redacted(view)
    return found
