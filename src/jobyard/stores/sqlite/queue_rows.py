"""Rows of queues and groups, as a transaction changes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jobyard.domain.admission import UNLIMITED
from jobyard.domain.job import QueueSettings, State
from jobyard.stores._shared.queue_rows import settings_from_row


@dataclass(slots=True, eq=False)
class StoredQueue:
    name: str
    settings: QueueSettings
    paused: int = 0
    turn: int = 0
    waiting: int = 0
    delayed: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    removed_by_cap: int = 0
    removed_by_cap_at: int | None = None
    saved: tuple[object, ...] = field(default=(), kw_only=True)
    max_running: int = field(init=False)
    max_per_group: int = field(init=False)

    def __post_init__(self) -> None:
        self.configure(self.settings)

    @classmethod
    def load(cls, row: tuple[Any, ...]) -> StoredQueue:
        return cls(row[0], settings_from_row(row[1:10]), *row[10:], saved=row)

    def configure(self, settings: QueueSettings) -> None:
        self.settings = settings
        self.max_running = UNLIMITED if settings.max_running is None else settings.max_running
        self.max_per_group = UNLIMITED if settings.max_per_group is None else settings.max_per_group

    def room(self) -> int:
        return 0 if self.paused else self.max_running - self.running

    def tally(self, state: str, change: int) -> None:
        """Count finished jobs of this state."""
        if state == State.COMPLETED:
            self.completed += change
        elif state == State.CANCELLED:
            self.cancelled += change
        else:
            self.failed += change

    def values(self) -> tuple[object, ...]:
        s = self.settings
        limits = (s.max_running, s.max_per_group, s.max_waiting, s.max_waiting_per_group)
        keeps = (s.keep_completed, s.keep_failed, s.keep_completed_seconds, s.keep_failed_seconds, s.keep_at_most)
        counts = (self.waiting, self.delayed, self.running, self.completed, self.failed, self.cancelled)
        by_cap = (self.removed_by_cap, self.removed_by_cap_at)
        return (self.name, *limits, *keeps, self.paused, self.turn, *counts, *by_cap)


@dataclass(slots=True, eq=False)
class GroupRow:
    queue: StoredQueue
    name: str
    own_limit: int | None = None
    paused: int = 0
    turn: int = 0
    waiting: int = 0
    delayed: int = 0
    running: int = 0
    stored: bool = True
    dirty: bool = False

    def room(self) -> int:
        """Return how many of its due jobs may start by the group's own limit."""
        if self.paused:
            return 0
        if self.own_limit is not None:
            return min(self.waiting, self.own_limit - self.running)
        if self.name == "":
            return self.waiting
        return min(self.waiting, self.queue.max_per_group - self.running)

    def is_empty(self) -> bool:
        return not (self.waiting or self.delayed or self.running or self.paused or self.own_limit is not None)
