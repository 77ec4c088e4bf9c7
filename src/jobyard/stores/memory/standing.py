"""The facts about one waiting job, for `domain.explain`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from jobyard.domain.admission import Group, Queue, group_room, limit_of
from jobyard.domain.explain import Standing
from jobyard.domain.instant import Instant
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.stores.memory.entry import Entry
from jobyard.stores.memory.line import QueueLine
from jobyard.stores.memory.shelf import Shelf

MOST_COUNTED = 1000
MOST_NAMED = 10


def standing(shelf: Shelf, entry: Entry, now: Instant, workers: Sequence[WorkerInfo]) -> Standing:
    line = shelf.lines.of(entry.new.queue)
    group_line = line.groups.get(entry.new.group)
    group = Group(entry.new.group) if group_line is None else group_line.group
    ahead = 0 if group_line is None else bisect_left(group_line.places, entry.place)
    groups_ahead = _groups_ahead(line, group)
    return Standing(
        job=entry.job(),
        now=now,
        queue=replace(line.queue, groups={}),
        group=replace(group),
        ahead_in_group=min(ahead, MOST_COUNTED),
        groups_ahead=min(groups_ahead, MOST_COUNTED),
        counts_capped=max(ahead, groups_ahead) > MOST_COUNTED,
        running_ids=_running_ids(shelf, line.queue, group),
        workers=sum(worker.takes(line.queue.name) for worker in workers),
    )


def _groups_ahead(line: QueueLine, group: Group) -> int:
    return sum(
        1
        for other in line.queue.groups.values()
        if other.name != group.name
        and group_room(line.queue, other) > 0
        and (group.due == 0 or other.turn < group.turn)
    )


def _running_ids(shelf: Shelf, queue: Queue, group: Group) -> tuple[str, ...]:
    """Those whose end would make room: the group's, or the queue's where only the queue is full."""
    is_queue_full = queue.max_running is not None and queue.running >= queue.max_running
    of_whole_queue = is_queue_full and group.running < limit_of(queue, group)
    holders = [
        entry.id
        for _, entry in sorted(shelf.running.items())
        if entry.new.queue == queue.name and (of_whole_queue or entry.new.group == group.name)
    ]
    return tuple(holders[:MOST_NAMED])
