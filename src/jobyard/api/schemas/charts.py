"""Schemas of the overview, charts, and the line of groups."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from jobyard.api.schemas.jobs import Timestamp

Range: TypeAlias = Literal["5m", "1h", "24h"]
Series: TypeAlias = tuple[float | None, ...]


class ChartView(msgspec.Struct, frozen=True, kw_only=True):
    """Values per interval, oldest first. Null: nothing is known of the interval; 0: nothing happened in it."""

    range: Range
    interval_seconds: float
    queue: str | None
    at: tuple[Timestamp, ...]
    finished: Series
    failed: Series
    started: Series
    waiting: Series
    running: Series
    wait_p50_seconds: Series
    wait_p95_seconds: Series
    wait_p99_seconds: Series
    run_p50_seconds: Series
    run_p95_seconds: Series
    run_p99_seconds: Series


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as the overview shows it."""

    name: str
    status: Literal["working", "at_limit", "paused", "no_worker", "idle"]
    paused: bool
    waiting: int
    delayed: int
    running: int
    max_running: int | None
    completed: int
    failed: int
    cancelled: int
    finished_per_minute: int
    oldest_waiting_seconds: float | None
    wait_p95_seconds: float | None
    sparkline: Series


class OldestWaiting(msgspec.Struct, frozen=True, kw_only=True):
    queue: str
    since: Timestamp
    seconds: float
    reason: str
    sentence: str


class WorkerCounts(msgspec.Struct, frozen=True, kw_only=True):
    live: int
    quiet: int
    lost: int


class AttentionAction(msgspec.Struct, frozen=True, kw_only=True):
    """A request that mends it."""

    method: str
    path: str
    label: str


class AttentionTarget(msgspec.Struct, frozen=True, kw_only=True):
    page: Literal["queue", "workers", "dead_letters", "schedules"]
    name: str


class AttentionItem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a person should look at."""

    code: str
    level: Literal["red", "amber"]
    sentence: str
    command: str
    target: AttentionTarget
    action: AttentionAction | None = None


class StatsView(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of the overview, as its event carries them."""

    at: Timestamp
    finished_per_minute: int
    waiting: int
    delayed: int
    running: int
    slots: int
    failed: int
    failed_last_hour: int
    finished_last_hour: int
    oldest_waiting: OldestWaiting | None
    wait_p50_seconds: float | None
    wait_p95_seconds: float | None
    wait_p99_seconds: float | None
    run_p95_seconds: float | None
    workers: WorkerCounts
    attention: tuple[AttentionItem, ...]


class OverviewView(StatsView, frozen=True, kw_only=True):
    queues: tuple[QueueRow, ...]
    queues_left_out: int
    workflows: int = 0
    runners: int | None = None


class LineGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group in line."""

    name: str | None
    place: int
    turn: int | None
    waiting: int
    delayed: int
    running: int
    limit: int | None
    effective_limit: int | None
    limit_origin: Literal["own", "queue", "none"]
    paused: bool
    status: Literal["next", "ready", "full", "blocked", "paused", "held"]
    sentence: str


class LineView(msgspec.Struct, frozen=True, kw_only=True):
    """The line of groups of a queue, front first."""

    queue: str
    paused: bool
    running: int
    max_running: int | None
    room: int | None
    next_group: str | None
    sentence: str
    groups: tuple[LineGroup, ...]
    left_out: int


class ConfigurationItem(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    value: Any
    origin: str


class ConfigurationView(msgspec.Struct, frozen=True):
    items: tuple[ConfigurationItem, ...]
