"""Queues: settings, pauses, limits, counts, ages, and the position of a job in line."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from itertools import islice

from jobyard.domain.admission import Group, Queue, group_room, limit_of
from jobyard.domain.explain import JobPosition
from jobyard.domain.job import QueueSettings, State
from jobyard.ports.admin_store import MAX_HEADS_SCANNED, GroupInfo, GroupsInLine, QueueAges, QueueInfo
from jobyard.stores._shared.limits import MAX_COUNTED_AHEAD, MAX_RUNNING_IDS
from jobyard.stores._shared.queue_rows import group_info, queue_info, queue_not_empty
from jobyard.stores.memory.codec import job_of
from jobyard.stores.memory.connection import MemoryConnection
from jobyard.stores.memory.job_table import JobTable
from jobyard.stores.memory.queue_line import GroupLine, QueueLine
from jobyard.stores.memory.schedules import MemorySchedules


class MemoryQueues:
    def __init__(self, connection: MemoryConnection, schedules: MemorySchedules) -> None:
        self._connection = connection
        self._schedules = schedules
        self._jobs = connection.jobs
        self._lines = connection.jobs.lines

    async def configure(self, queue: str, settings: QueueSettings) -> None:
        with self._connection.changing():
            self._lines.of(queue).apply(settings)

    async def set_paused(self, queue: str, group: str | None, paused: bool) -> None:
        with self._connection.changing():
            line = self._lines.of(queue)
            if group is None:
                line.queue.paused = paused
            else:
                line.group(group).group.paused = paused
                line.drop_if_idle(group)

    async def set_limit(self, queue: str, group: str, limit: int | None) -> None:
        with self._connection.changing():
            line = self._lines.of(queue)
            line.group(group).group.limit = limit
            line.drop_if_idle(group)

    async def remove_queue(self, queue: str) -> bool:
        with self._connection.changing():
            line = self._lines.get(queue)
            if line is None:
                return False
            if line.due or line.delayed or line.queue.running or any(line.ended.values()):
                raise queue_not_empty(queue)
            self._lines.remove(queue)
            self._jobs.unique_keys.forget_queue(queue)
            return True

    async def queues(self) -> list[QueueInfo]:
        with self._connection.locked():
            return [_queue_info(line) for line in self._lines]

    async def groups(self, queue: str, limit: int = 1000, after: str | None = None) -> list[GroupInfo]:
        with self._connection.locked():
            line = self._lines.get(queue)
            if line is None:
                return []
            # The jobs without a group come first.
            ordered = sorted(line.groups.items(), key=lambda item: (item[0] is not None, item[0] or ""))
            infos = (_group_info(line, group) for name, group in ordered if after is None or (name and name > after))
            return list(islice(infos, limit))

    async def line(self, queue: str, limit: int = 100) -> GroupsInLine:
        with self._connection.locked():
            line = self._lines.get(queue)
            waiting = [] if line is None else [group for group in line.groups.values() if group.group.due]
            waiting.sort(key=lambda group: group.group.turn)
            infos = () if line is None else tuple(_group_info(line, group) for group in waiting[:limit])
            return GroupsInLine(infos, len(waiting))

    async def ages(self) -> list[QueueAges]:
        with self._connection.locked():
            return [_ages(self._jobs, line) for line in self._lines]

    async def position(self, job_id: str) -> JobPosition:
        with self._connection.locked() as now:
            stored = self._jobs.require(job_id)
            line = self._lines.of(stored.new.queue)
            group_line = line.groups.get(stored.new.group)
            group = Group(stored.new.group) if group_line is None else group_line.group
            ahead = 0 if group_line is None else bisect_left(group_line.positions, stored.position)
            groups_ahead = _groups_ahead(line, group)
            return JobPosition(
                job=job_of(stored),
                is_due=stored.is_in_line,
                queue=replace(line.queue, groups={}),
                group=replace(group),
                ahead_in_group=min(ahead, MAX_COUNTED_AHEAD),
                groups_ahead=min(groups_ahead, MAX_COUNTED_AHEAD),
                counts_capped=max(ahead, groups_ahead) > MAX_COUNTED_AHEAD,
                running_ids=_running_ids(self._jobs, line.queue, group),
                workers=sum(worker.takes(line.queue.name) for worker in self._schedules.live_workers(now)),
            )


def _queue_info(line: QueueLine) -> QueueInfo:
    completed, failed, timed_out, cancelled = (
        line.ended.get(state, 0) for state in (State.COMPLETED, State.FAILED, State.TIMEOUT, State.CANCELLED)
    )
    counts = (line.due, line.delayed, line.queue.running, completed, failed + timed_out, cancelled)
    by_cap = (line.removed_by_cap, line.removed_by_cap_at)
    return queue_info(line.queue.name, line.settings, line.queue.paused, (*counts, *by_cap))


def _group_info(line: QueueLine, group: GroupLine) -> GroupInfo:
    own = group.group
    row = (own.name, own.limit, own.paused, own.due, group.delayed, own.running)
    return group_info(line.queue.name, line.settings.max_per_group, row)


def _ages(table: JobTable, line: QueueLine) -> QueueAges:
    """Look at the first job of each priority in each group, as the SQL stores do along their index."""
    name = line.queue.name
    first: dict[tuple[str | None, int], int] = {}
    for group, group_line in sorted(line.groups.items(), key=lambda item: item[0] or ""):
        for urgency, sequence in group_line.positions:
            first.setdefault((group, urgency), sequence)
    due = [table.at(sequence) for sequence in islice(first.values(), MAX_HEADS_SCANNED)]
    started = [stored.started_at for stored in table.running.values() if stored.new.queue == name and stored.started_at]
    return QueueAges(
        queue=name,
        waiting_since=min((max(stored.created_at, stored.run_at) for stored in due), default=None),
        running_since=min(started, default=None),
    )


def _groups_ahead(line: QueueLine, group: Group) -> int:
    return sum(
        1
        for other in line.queue.groups.values()
        if other.name != group.name
        and group_room(line.queue, other) > 0
        and (group.due == 0 or other.turn < group.turn)
    )


def _running_ids(table: JobTable, queue: Queue, group: Group) -> tuple[str, ...]:
    """Return running jobs whose end would free a slot: of the group, or of the queue if only the queue is full."""
    is_queue_full = queue.max_running is not None and queue.running >= queue.max_running
    of_whole_queue = is_queue_full and group.running < limit_of(queue, group)
    ids = (
        stored.id
        for _, stored in sorted(table.running.items())
        if stored.new.queue == queue.name and (of_whole_queue or stored.new.group == group.name)
    )
    return tuple(islice(ids, MAX_RUNNING_IDS))
