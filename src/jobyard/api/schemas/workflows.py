"""Schemas of workflow files and their runs (`/api/v2/workflows`), and of the history of a workflow."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from jobyard.api.schemas.jobs import Name, Priority, ProgressView, RequestSchema, Timestamp
from jobyard.domain.job import State
from jobyard.domain.workflow_files.step_state import StepStatus


class WorkflowRequest(RequestSchema, frozen=True, kw_only=True):
    """A run of a workflow file."""

    workflow_id: Name
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    platform: Name | None = None
    priority: Priority | None = None


class WorkflowAccepted(msgspec.Struct, frozen=True, kw_only=True):
    job_id: str


class WorkflowAcceptedEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    success: bool = True
    data: WorkflowAccepted


class WorkflowStepDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A step as the file defines it."""

    id: str
    kind: str
    description: str
    needs: tuple[str, ...]
    has_items: bool  # it has `for_each`
    on_failure: bool


class WorkflowView(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow file."""

    id: str
    version: int
    description: str
    digest: str
    platform: str | None  # as the file has it, perhaps with references to params
    timeout_seconds: float
    params: dict[str, Any]  # a JSON Schema
    steps: tuple[WorkflowStepDefinition, ...]
    text: str
    format: str


class WorkflowList(msgspec.Struct, frozen=True, kw_only=True):
    workflows: tuple[WorkflowView, ...]


class WorkflowListEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    success: bool = True
    data: WorkflowList


class WorkflowItemCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The items of a step with `for_each`."""

    total: int
    ended: int
    failed: int


class WorkflowStepView(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a run."""

    id: str
    kind: str
    status: StepStatus
    on_failure: bool
    started_at: Timestamp | None = None
    finished_at: Timestamp | None = None
    elapsed_seconds: float | None = None
    attempts: int = 0
    items: WorkflowItemCounts | None = None
    percent: float | None = None
    message: str = ""
    reason: str = ""


class WorkflowRunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a workflow file."""

    job_id: str
    workflow_id: str
    version: int
    digest: str
    platform: str
    state: State
    attempt: int
    priority: int
    params: dict[str, Any]
    created_at: Timestamp
    first_started_at: Timestamp | None = None
    started_at: Timestamp | None
    finished_at: Timestamp | None
    elapsed_seconds: float | None
    progress: ProgressView | None
    steps: tuple[WorkflowStepView, ...]
    output: Any
    reason: str | None
    cancel_requested: str | None


class WorkflowRunEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    success: bool = True
    data: WorkflowRunView


# History


class OperationError(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    message: str


class OperationView(msgspec.Struct, frozen=True, kw_only=True):
    """What a workflow has recorded: one operation, or a part of one."""

    number: int
    key: str
    part: str
    kind: str
    name: str
    status: str
    recorded_at: Timestamp
    started_at: Timestamp | None = None
    seconds: float | None = None
    child_id: str | None = None
    error: OperationError | None = None
    result: Any = UNSET


class WorkflowHistoryPage(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[OperationView, ...]
    next_page_token: str | UnsetType = UNSET
