"""Schemas of queues, groups and workers."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from jobyard.api.schemas.jobs import Limit, RequestSchema, Seconds, Timestamp


class SettingsRequest(RequestSchema, frozen=True, kw_only=True):
    """Limits and retention of a queue. Fields that are not given stay as they are; null removes a limit."""

    max_running: Limit | UnsetType | None = UNSET
    max_per_group: Limit | UnsetType | None = UNSET
    max_waiting: Limit | UnsetType | None = UNSET
    max_waiting_per_group: Limit | UnsetType | None = UNSET
    keep_completed: Limit | UnsetType = UNSET
    keep_failed: Limit | UnsetType = UNSET
    keep_seconds: Seconds | UnsetType = UNSET


class SettingsView(msgspec.Struct, frozen=True, kw_only=True):
    max_running: int | None
    max_per_group: int | None
    max_waiting: int | None
    max_waiting_per_group: int | None
    keep_completed: int
    keep_failed: int
    keep_seconds: float


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    paused: bool
    settings: SettingsView
    # Counts are null for a token that is restricted to groups or kinds: they include jobs out of its scope.
    waiting: int | None
    delayed: int | None
    running: int | None
    completed: int | None
    failed: int | None
    cancelled: int | None
    finished_per_minute: int | None = None  # jobs that ended in the last minute; null in events
    settings_origin: Literal["default", "declared", "operator"] | None = None  # null in events
    declared_settings: SettingsView | None = None  # null: not declared, and in events


class QueuePage(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[QueueView, ...]
    next_page_token: str | UnsetType = UNSET


class DrainResponse(msgspec.Struct, frozen=True):
    removed: int


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    queue: str
    name: str | None  # null: jobs without a group
    limit: int | None  # its own limit, if set
    effective_limit: int | None
    paused: bool
    waiting: int
    delayed: int
    running: int


class GroupPage(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[GroupView, ...]
    next_page_token: str | UnsetType = UNSET


class LimitRequest(RequestSchema, frozen=True, kw_only=True):
    limit: Limit  # 0 blocks the group, 1 makes it serial


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    host: str
    pid: int
    queues: tuple[str, ...]  # empty: all
    concurrency: int
    running: int
    completed: int
    quiet: bool  # it claims no more jobs
    started_at: Timestamp
    seen_at: Timestamp
    finished_per_minute: dict[str, int] = {}  # jobs that ended in the last minute, by queue


class WorkerList(msgspec.Struct, frozen=True):
    items: tuple[WorkerView, ...]
