"""Schemas of queues, groups and workers."""

from __future__ import annotations

from typing import Literal, TypedDict

import msgspec
from msgspec import UNSET, UnsetType

from jobyard.api.schemas.jobs import AwareDatetime, Limit, RequestSchema, Seconds
from jobyard.api.schemas.readable import Readable


class SettingsRequest(RequestSchema, frozen=True, kw_only=True):
    """Limits and retention of a queue. Fields that are not given stay as they are; null removes a limit."""

    max_running: Limit | UnsetType | None = UNSET
    max_per_group: Limit | UnsetType | None = UNSET
    max_waiting: Limit | UnsetType | None = UNSET
    max_waiting_per_group: Limit | UnsetType | None = UNSET
    keep_completed: Limit | UnsetType = UNSET
    keep_failed: Limit | UnsetType = UNSET
    keep_completed_seconds: Seconds | UnsetType = UNSET
    keep_failed_seconds: Seconds | UnsetType = UNSET
    keep_at_most: Limit | UnsetType = UNSET


class SettingsChange(TypedDict, total=False):
    """The same as keyword arguments."""

    max_running: int | None
    max_per_group: int | None
    max_waiting: int | None
    max_waiting_per_group: int | None
    keep_completed: int
    keep_failed: int
    keep_completed_seconds: float
    keep_failed_seconds: float
    keep_at_most: int


class SettingsView(Readable, frozen=True, kw_only=True):
    max_running: int | None
    max_per_group: int | None
    max_waiting: int | None
    max_waiting_per_group: int | None
    keep_completed: int
    keep_failed: int
    keep_completed_seconds: float
    keep_failed_seconds: float
    keep_at_most: int


class QueueView(Readable, frozen=True, kw_only=True):
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
    removed_by_cap: int | None
    removed_by_cap_at: AwareDatetime | None = None
    finished_per_minute: int | None = None  # jobs that ended in the last minute; null in events
    settings_origin: Literal["default", "declared", "operator"] | None = None  # null in events
    declared_settings: SettingsView | None = None  # null: not declared, and in events


class QueuePage(Readable, frozen=True, kw_only=True):
    items: tuple[QueueView, ...]
    next_page_token: str | UnsetType = UNSET


class DrainResponse(msgspec.Struct, frozen=True):
    removed: int


class GroupView(Readable, frozen=True, kw_only=True):
    queue: str
    name: str | None  # null: jobs without a group
    limit: int | None  # its own limit, if set
    effective_limit: int | None
    paused: bool
    waiting: int
    delayed: int
    running: int


class GroupPage(Readable, frozen=True, kw_only=True):
    items: tuple[GroupView, ...]
    next_page_token: str | UnsetType = UNSET


class LimitRequest(RequestSchema, frozen=True, kw_only=True):
    limit: Limit  # 0 blocks the group, 1 makes it serial


class WorkerJob(Readable, frozen=True, kw_only=True):
    """A job that a worker runs."""

    id: str
    kind: str
    queue: str
    group: str | None
    started_at: AwareDatetime | None
    percent: float | None
    is_handed_off: bool = False  # runs outside of the worker and takes none of its slots


class WorkerView(Readable, frozen=True, kw_only=True):
    id: str
    host: str
    pid: int
    queues: tuple[str, ...]  # empty: all
    concurrency: int
    running: int | None  # null: the worker also runs jobs out of the scope of a token of groups or kinds
    completed: int | None  # null: the worker also runs jobs that are out of the scope of the token
    quiet: bool  # it claims no more jobs
    started_at: AwareDatetime
    seen_at: AwareDatetime
    # Jobs that ended in the last minute, by queue.
    finished_per_minute: dict[str, int] = msgspec.field(default_factory=dict)
    kinds: tuple[str, ...] | None = None  # that it has handlers for; null: not known, or not for this token
    memory_bytes: int | None = None  # of its process; null: not known
    cpu_seconds: float | None = None  # since its start, with its child processes; null: not known
    cpu_percent: float | None = None  # 100 is one core; null: not known
    is_lost: bool = False  # it ended within the last hour without saying so
    jobs: tuple[WorkerJob, ...] | UnsetType = UNSET  # what it runs, if that is wanted; at most 20
    jobs_out_of_scope: int | UnsetType | None = UNSET  # that it also runs; null: not for this token


class WorkerList(msgspec.Struct, frozen=True):
    items: tuple[WorkerView, ...]
