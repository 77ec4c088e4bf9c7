"""Queues and groups in line: who stands where, and the counts that move with every job."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from jobyard.domain.admission import Group, Queue
from jobyard.domain.job import QueueSettings, State
from jobyard.stores.memory.entry import Entry


@dataclass(slots=True)
class GroupLine:
    group: Group
    places: list[tuple[int, int]] = field(default_factory=list)  # due jobs as (-priority, sequence), sorted
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

    def group(self, name: str | None) -> GroupLine:
        if name not in self.groups:
            self.groups[name] = GroupLine(Group(name))
            self.queue.groups[name] = self.groups[name].group
        return self.groups[name]

    def forget_if_idle(self, name: str | None) -> None:
        # A claim walks along all groups, so those without work, limit or pause must not pile up.
        if name in self.groups and self.groups[name].is_idle:
            del self.groups[name], self.queue.groups[name]

    def apply(self, settings: QueueSettings) -> None:
        self.settings = settings
        self.queue.max_running = settings.max_running
        self.queue.max_per_group = settings.max_per_group

    def bucket(self, state: State) -> dict[int, None]:
        return self.completed if state is State.COMPLETED else self.failed


class Lines:
    """Every queue's line, and the one counter that all turns come from."""

    def __init__(self) -> None:
        self._queues: dict[str, QueueLine] = {}
        self._turn = 0

    def __iter__(self) -> Iterator[QueueLine]:
        return iter([self._queues[name] for name in sorted(self._queues)])

    def get(self, name: str) -> QueueLine | None:
        return self._queues.get(name)

    def of(self, name: str) -> QueueLine:
        """The queue's line; an unknown queue begins with default settings."""
        if name not in self._queues:
            self._queues[name] = QueueLine(Queue(name))
        return self._queues[name]

    def fresh_turn(self) -> int:
        self._turn += 1
        return self._turn

    def arrive(self, entry: Entry) -> None:
        """A due job joins; its group, and its queue, join the end of their lines if they had none."""
        line = self.of(entry.new.queue)
        group = line.group(entry.new.group)
        if group.group.due == 0:
            group.group.turn = self.fresh_turn()
        if line.due == 0:
            line.queue.turn = self.fresh_turn()
        insort(group.places, entry.place)
        group.group.due += 1
        line.due += 1

    def leave(self, entry: Entry) -> None:
        line = self.of(entry.new.queue)
        group = line.group(entry.new.group)
        del group.places[bisect_left(group.places, entry.place)]
        group.group.due -= 1
        line.due -= 1

    def move(self, entry: Entry, priority: int) -> None:
        """Another place within the group; the group's own place in line stays."""
        places = self.of(entry.new.queue).group(entry.new.group).places
        del places[bisect_left(places, entry.place)]
        entry.priority = priority
        insort(places, entry.place)

    def count_delayed(self, entry: Entry, by: int) -> None:
        line = self.of(entry.new.queue)
        line.delayed += by
        line.group(entry.new.group).delayed += by

    def count_running(self, entry: Entry, by: int) -> None:
        line = self.of(entry.new.queue)
        line.queue.running += by
        line.group(entry.new.group).group.running += by

    def to_the_end(self, entry: Entry) -> None:
        """After each grant the group goes to the end of its line, and the queue to the end of the queues'."""
        line = self.of(entry.new.queue)
        line.group(entry.new.group).group.turn = self.fresh_turn()
        line.queue.turn = self.fresh_turn()
