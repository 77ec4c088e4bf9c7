"""The admission rule, stated once.

1. A group is *eligible* when it has a due job, neither its queue nor itself is paused, fewer than the queue's
   `max_running` jobs run, and fewer than the group's limit run: its own limit if set, else the queue's `max_per_group`
   (which does not apply to jobs without a group).
2. Groups stand in line. A group joins the end when a due job arrives and it had none, goes to the end after each job
   it is given, and keeps its place while a limit or a pause holds it back. The eligible group nearest the front goes
   first. The queues that a claim names take turns in the same way.
3. Within the group: highest priority, then lowest sequence.
4. Claiming n jobs equals claiming one n times.

`next_in_turn` states it for one job, and the memory store calls it n times. `share` states it for n at once: the same
result without walking the line n times; the SQL and Lua stores implement that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

UNLIMITED = 1 << 53


@dataclass(slots=True)
class Group:
    """A group's place in its queue's line; `turn` means nothing while `due` is 0."""

    name: str | None
    limit: int | None = None
    paused: bool = False
    running: int = 0
    due: int = 0
    turn: int = 0


@dataclass(slots=True)
class Queue:
    """A queue's place among the queues, and its line of groups."""

    name: str
    max_running: int | None = None
    max_per_group: int | None = None
    paused: bool = False
    running: int = 0
    turn: int = 0
    groups: dict[str | None, Group] = field(default_factory=dict)


def limit_of(queue: Queue, group: Group) -> int:
    """How many of the group's jobs may run at once.

    >>> limit_of(Queue("q", max_per_group=10), Group("acme", limit=0))
    0
    >>> limit_of(Queue("q", max_per_group=10), Group(None)) == UNLIMITED
    True
    """
    if group.limit is not None:
        return group.limit
    if group.name is None or queue.max_per_group is None:
        return UNLIMITED
    return queue.max_per_group


def queue_room(queue: Queue) -> int:
    """How many more jobs of the queue may start, whatever their groups."""
    if queue.paused:
        return 0
    return max(0, (UNLIMITED if queue.max_running is None else queue.max_running) - queue.running)


def group_room(queue: Queue, group: Group) -> int:
    """How many of the group's due jobs may start, as far as the group itself is concerned."""
    if group.paused:
        return 0
    return max(0, min(group.due, limit_of(queue, group) - group.running))


def is_eligible(queue: Queue, group: Group) -> bool:
    return queue_room(queue) > 0 and group_room(queue, group) > 0


def next_in_turn(queues: Iterable[Queue]) -> tuple[Queue, Group] | None:
    """The next group: the eligible one nearest the front, of the queue nearest the front that has one."""
    for queue in sorted(queues, key=lambda queue: queue.turn):
        eligible = [group for group in queue.groups.values() if is_eligible(queue, group)]
        if eligible:
            return queue, min(eligible, key=lambda group: group.turn)
    return None


def share(rooms: Sequence[int], wanted: int) -> list[int]:
    """Distribute `wanted` places over the groups in line, given the room of each; returns indexes, in order.

    One round gives one place to every group with room left, in line order; rounds repeat until the places or the room
    are used up. The position of a group's last place in the result is its new place in line.

    >>> share([1, 3, 2], 5)
    [0, 1, 2, 1, 2]
    >>> share([5], 2)
    [0, 0]
    """
    given: list[int] = []
    remaining = list(rooms)
    round_of = [index for index, room in enumerate(remaining) if room > 0]
    while round_of and len(given) < wanted:
        round_of = round_of[: wanted - len(given)]
        given += round_of
        for index in round_of:
            remaining[index] -= 1
        round_of = [index for index in round_of if remaining[index] > 0]
    return given
