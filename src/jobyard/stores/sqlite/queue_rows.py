"""Rows of queues and groups, as a transaction changes them."""

from __future__ import annotations

from jobyard.domain.admission import UNLIMITED
from jobyard.domain.job import QueueSettings, State


class QueueRow:
    """Settings, turn and counts of a queue."""

    __slots__ = (
        "cancelled",
        "completed",
        "delayed",
        "failed",
        "max_per_group",
        "max_running",
        "name",
        "paused",
        "running",
        "saved",
        "settings",
        "turn",
        "waiting",
    )

    def __init__(self, name: str, settings: QueueSettings, *rest: int) -> None:
        self.name = name
        self.configure(settings)
        (self.paused, self.turn, self.waiting, self.delayed, self.running) = rest[:5]
        (self.completed, self.failed, self.cancelled) = rest[5:]
        self.saved: tuple[object, ...] = ()

    @classmethod
    def load(cls, row: tuple[object, ...]) -> QueueRow:
        name, running, per_group, waiting, group_waiting, completed, failed, seconds, *rest = row
        settings = QueueSettings(
            max_running=running,  # type: ignore[arg-type]  # columns are typed by the schema
            max_per_group=per_group,  # type: ignore[arg-type]
            max_waiting=waiting,  # type: ignore[arg-type]
            max_waiting_per_group=group_waiting,  # type: ignore[arg-type]
            keep_completed=completed,  # type: ignore[arg-type]
            keep_failed=failed,  # type: ignore[arg-type]
            keep_seconds=seconds,  # type: ignore[arg-type]
        )
        queue = cls(str(name), settings, *rest)  # type: ignore[arg-type]
        queue.saved = row
        return queue

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
        keeps = (s.keep_completed, s.keep_failed, s.keep_seconds)
        counts = (self.waiting, self.delayed, self.running, self.completed, self.failed, self.cancelled)
        return (self.name, *limits, *keeps, self.paused, self.turn, *counts)


class GroupRow:
    """Limit, turn and counts of a group."""

    __slots__ = ("delayed", "dirty", "name", "own_limit", "paused", "queue", "running", "stored", "turn", "waiting")

    def __init__(
        self,
        queue: QueueRow,
        name: str,
        own_limit: int | None,
        paused: int,
        turn: int,
        waiting: int,
        delayed: int,
        running: int,
        stored: bool = True,
    ) -> None:
        self.queue = queue
        self.name = name
        self.own_limit = own_limit
        self.paused = paused
        self.turn = turn
        self.waiting = waiting
        self.delayed = delayed
        self.running = running
        self.stored = stored
        self.dirty = False

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
