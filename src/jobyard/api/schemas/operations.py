"""Schemas of bulk operations and of groups of dead letters."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from jobyard.api.schemas.jobs import Ids, JobFilter, Priority, Reason, RequestSchema, Timestamp
from jobyard.domain.job import State
from jobyard.ports.admin_store import Action


class OperationRequest(RequestSchema, frozen=True, kw_only=True):
    """An action on many jobs: give either `ids` or `filter`. The server carries it out and reports its progress."""

    action: Action
    ids: Ids | None = None
    filter: JobFilter | None = None
    reason: Reason = ""
    priority: Priority | None = None  # for `prioritise`


class BulkOperationView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    action: Action
    filter: JobFilter | None
    ids_given: int | None
    state: Literal["running", "done", "cancelled", "failed"]
    matching: int
    matching_capped: bool
    examined: int
    changed: int
    unchanged: int
    created_by: str
    created_at: Timestamp
    updated_at: Timestamp
    finished_at: Timestamp | None
    error: str | None


class BulkOperationList(msgspec.Struct, frozen=True):
    items: tuple[BulkOperationView, ...]


class DeadLetterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of one kind with the same error."""

    kind: str
    error: str
    sample_error: str
    count: int
    first_at: Timestamp
    last_at: Timestamp
    queues: tuple[str, ...]
    states: tuple[State, ...]
    newest_job_id: str


class DeadLetterGroupPage(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of the newest dead letters, most frequent first. With a token there are older ones: add up the groups."""

    items: tuple[DeadLetterGroup, ...]
    examined: int
    next_page_token: str | UnsetType = UNSET
