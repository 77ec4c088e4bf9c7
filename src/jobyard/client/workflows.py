"""Client methods for workflow files, their runs, and the histories of workflows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from jobyard.api.schemas import workflows as schemas
from jobyard.api.schemas.jobs import ReasonRequest
from jobyard.client.address import path
from jobyard.client.jobs import new_key
from jobyard.client.transport import Transport

PAGE_SIZE = 200


class WorkflowEndpoints:
    _transport: Transport

    async def workflows(self) -> tuple[schemas.WorkflowView, ...]:
        """The workflow files of the server, by id."""
        found = await self._transport.call("GET", "/api/v2/workflows", schemas.WorkflowListEnvelope)
        return found.data.workflows

    async def run_workflow(
        self,
        workflow_id: str,
        params: Mapping[str, Any] | None = None,
        *,
        platform: str | None = None,
        priority: int | None = None,
    ) -> str:
        """Run a workflow file; returns the id of its job. Raises UnknownWorkflow, or BadInput.

        Retries of the request carry the same Idempotency-Key, so that they start one run.
        """
        body = schemas.WorkflowRequest(
            workflow_id=workflow_id, params=dict(params or {}), platform=platform, priority=priority
        )
        found = await self._transport.call(
            "POST", "/api/v2/workflows/execute", schemas.WorkflowAcceptedEnvelope, body=body, key=new_key()
        )
        return found.data.job_id

    async def workflow_run(self, job_id: str) -> schemas.WorkflowRunView:
        """A run with the states of its steps. Raises JobNotFound, also for jobs that run no workflow file."""
        at = path("api", "v2", "workflows", job_id)
        return (await self._transport.call("GET", at, schemas.WorkflowRunEnvelope)).data

    async def cancel_workflow(self, job_id: str, reason: str = "") -> schemas.WorkflowRunView:
        """Cancel a run: no further step starts, and running steps are stopped."""
        at, body = path("api", "v2", "workflows", job_id, "cancel"), ReasonRequest(reason=reason)
        return (await self._transport.call("POST", at, schemas.WorkflowRunEnvelope, body=body)).data

    def history(self, job_id: str, *, with_results: bool = False) -> AsyncIterator[schemas.OperationView]:
        """What a workflow has recorded, oldest first."""
        query = {"page_size": PAGE_SIZE, "results": "true" if with_results else None}
        return self._transport.walk(path("v1", "jobs", job_id, "history"), schemas.WorkflowHistoryPage, query)
