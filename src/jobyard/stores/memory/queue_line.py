"""Queue lines: the order of groups and queues for admission, and their counts."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from jobyard.domain.admission import Group, Queue
from jobyard.domain.instant import Instant
from jobyard.domain.job import QueueSettings, State
from jobyard.stores.memory.stored_job import StoredJob


@dataclass(slots=True)
class GroupLine:
    group: Group
    positions: list[tuple[int, int]] = field(default_factory=list)  # due jobs as (-priority, sequence), sorted
    delayed: int = 0

    @property
    def pending(self) -> int:
        return self.group.due + self.delayed

    @property
    def is_idle(self) -> bool:
        group = self.group
        return self.pending == 0 and group.running == 0 and group.limit is None and not group.paused


@dataclass(slots=True)
class QueueLine:
    queue: Queue
    settings: QueueSettings = field(default_factory=QueueSettings)
    groups: dict[str | None, GroupLine] = field(default_factory=dict)
    due: int = 0
    delayed: int = 0
    ended: dict[State, int] = field(default_factory=dict)
    # Sequences in the order in which the jobs ended, for retention.
    completed: dict[int, None] = field(default_factory=dict)
    failed: dict[int, None] = field(default_factory=dict)
    removed_by_cap: int = 0
    removed_by_cap_at: Instant | None = None

    def group(self, name: str | None) -> GroupLine:
        if name not in self.groups:
            self.groups[name] = GroupLine(Group(name))
            self.queue.groups[name] = self.groups[name].group
        return self.groups[name]

    def drop_if_idle(self, name: str | None) -> None:
        # A claim visits every group, so groups without jobs, limit or pause would make it ever slower.
        if name in self.groups and self.groups[name].is_idle:
            del self.groups[name], self.queue.groups[name]

    def apply(self, settings: QueueSettings) -> None:
        self.settings = settings
        self.queue.max_running = settings.max_running
        self.queue.max_per_group = settings.max_per_group

    def bucket(self, state: State) -> dict[int, None]:
        return self.completed if state is State.COMPLETED else self.failed


class QueueLines:
    """The lines of all queues, and the counter that numbers their turns."""

    def __init__(self) -> None:
        self._queues: dict[str, QueueLine] = {}
        self._turn = 0

    def __iter__(self) -> Iterator[QueueLine]:
        return iter([self._queues[name] for name in sorted(self._queues)])

    def get(self, name: str) -> QueueLine | None:
        return self._queues.get(name)

    def of(self, name: str) -> QueueLine:
        """Return the line of the queue, created with default settings if it is unknown."""
        if name not in self._queues:
            self._queues[name] = QueueLine(Queue(name))
        return self._queues[name]

    def remove(self, name: str) -> None:
        del self._queues[name]

    def next_turn(self) -> int:
        self._turn += 1
        return self._turn

    def arrive(self, stored: StoredJob) -> None:
        """Add a due job; a group or queue that had none joins the end of its line."""
        line = self.of(stored.new.queue)
        group = line.group(stored.new.group)
        if group.group.due == 0:
            group.group.turn = self.next_turn()
        if line.due == 0:
            line.queue.turn = self.next_turn()
        insort(group.positions, stored.position)
        group.group.due += 1
        line.due += 1

    def leave(self, stored: StoredJob) -> None:
        line = self.of(stored.new.queue)
        group = line.group(stored.new.group)
        del group.positions[bisect_left(group.positions, stored.position)]
        group.group.due -= 1
        line.due -= 1

    def reprioritise(self, stored: StoredJob, priority: int) -> None:
        """Move the job within its group; the position of the group in line does not change."""
        positions = self.of(stored.new.queue).group(stored.new.group).positions
        del positions[bisect_left(positions, stored.position)]
        stored.priority = priority
        insort(positions, stored.position)

    def count_delayed(self, stored: StoredJob, by: int) -> None:
        line = self.of(stored.new.queue)
        line.delayed += by
        line.group(stored.new.group).delayed += by

    def count_running(self, stored: StoredJob, by: int) -> None:
        line = self.of(stored.new.queue)
        line.queue.running += by
        line.group(stored.new.group).group.running += by

    def move_to_end(self, stored: StoredJob) -> None:
        """Move the group to the end of its queue's line, and the queue to the end of all, after each claimed job."""
        line = self.of(stored.new.queue)
        line.group(stored.new.group).group.turn = self.next_turn()
        line.queue.turn = self.next_turn()
