"""One write transaction: the rows of the line are loaded once, changed in memory, and written back once."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Container
from typing import NamedTuple

from jobyard.domain.admission import UNLIMITED
from jobyard.domain.instant import FOREVER, Instant
from jobyard.domain.job import Job, QueueSettings, State
from jobyard.stores.sqlite.statements import as_list, sql

LOAD_COUNTER, SAVE_COUNTER = sql("load_counter"), sql("save_counter")
LOAD_QUEUE, SAVE_QUEUE = sql("load_queue"), sql("save_queue")
LOAD_GROUP, LOAD_GROUPS, READ_LINE = sql("load_group"), sql("load_groups"), sql("read_line")
INSERT_GROUP, UPDATE_GROUP, DELETE_GROUP = sql("insert_group"), sql("update_group"), sql("delete_group")
INSERT_READY, REOPEN_GROUPS = sql("insert_ready"), sql("reopen_groups")


class QueueRow:
    """A queue's settings, its place among the queues and its counts."""

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
        """One more, or one less, finished job in this state."""
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
    """A group's place in its queue's line and its counts."""

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
        """How many of its due jobs may start, as far as the group itself is concerned."""
        if self.paused:
            return 0
        if self.own_limit is not None:
            return min(self.waiting, self.own_limit - self.running)
        if self.name == "":
            return self.waiting
        return min(self.waiting, self.queue.max_per_group - self.running)

    def is_empty(self) -> bool:
        return not (self.waiting or self.delayed or self.running or self.paused or self.own_limit is not None)


class Fresh(NamedTuple):
    """A due job that came in this transaction: its place in the line, and what a worker needs."""

    place: tuple[str, str, int, int]
    row: tuple[object, ...]


class Transaction:
    """The unit of work that every verb is handed; `flush` writes what it changed."""

    __slots__ = (
        "_counter",
        "_cursor",
        "_fresh",
        "_groups",
        "_queues",
        "arrived",
        "awaited",
        "connection",
        "due",
        "due_known",
        "ended",
        "finish",
        "now",
        "revision",
        "sequence",
        "turn",
    )
    sequence: int
    turn: int
    finish: int
    revision: int

    def __init__(self, connection: sqlite3.Connection, now: Instant, awaited: Container[str] = ()) -> None:
        self.connection = connection
        self._cursor = connection.cursor()
        self._cursor.row_factory = None
        self.now = now
        self.arrived = False  # somebody waiting for work should look
        self.awaited = awaited  # ids of jobs whose end somebody in this process waits for
        self.ended: dict[str, Job | None] = {}  # those of them that ended here
        self._queues: dict[str, QueueRow] = {}
        self._groups: dict[str, dict[str, GroupRow]] = {}  # by queue, then by name
        self._fresh: dict[int, Fresh] = {}  # by the identity of the group's row
        *counter, due = self._cursor.execute(LOAD_COUNTER).fetchone()
        self._counter = tuple(counter)
        self.sequence, self.turn, self.finish, self.revision = counter
        self.due: Instant | None = due if due is None or due < FOREVER else None  # of the next delayed job, if known
        self.due_known = True

    @property
    def cursor(self) -> sqlite3.Cursor:
        """For statements about jobs: they must find in the line whoever joined it."""
        if self._fresh:
            self._seat_the_fresh()
        return self._cursor

    @property
    def bare_cursor(self) -> sqlite3.Cursor:
        """For statements that do not look at the line of a group."""
        return self._cursor

    def join(self, group: GroupRow, fresh: Fresh) -> None:
        """The only due job of its group: claimed at once, as it is when somebody waits, it need never be written down
        as waiting."""
        self._fresh[id(group)] = fresh

    def take_fresh(self, group: GroupRow) -> tuple[object, ...] | None:
        """The group's only due job, if it came in this transaction, with what a worker needs."""
        fresh = self._fresh.pop(id(group), None)
        return None if fresh is None else fresh.row

    def _seat_the_fresh(self) -> None:
        rows = sorted(fresh.place for fresh in self._fresh.values())
        self._fresh.clear()
        self._cursor.executemany(INSERT_READY, rows)

    def queue(self, name: str) -> QueueRow:
        """The queue's row, made with default settings if it is new."""
        row = self.known_queue(name)
        if row is None:
            row = self._queues[name] = QueueRow(name, QueueSettings(), *([0] * 8))
        return row

    def known_queue(self, name: str) -> QueueRow | None:
        row = self._queues.get(name)
        if row is None:
            found = self._cursor.execute(LOAD_QUEUE, (name,)).fetchone()
            if found is None:
                return None
            row = self._queues[name] = QueueRow.load(found)
        return row

    def loaded_queues(self) -> list[str]:
        return list(self._queues)

    def group(self, queue: str, name: str) -> GroupRow:
        """The group's row, to be changed."""
        groups = self._groups.setdefault(queue, {})
        row = groups.get(name)
        if row is None:
            found = self._cursor.execute(LOAD_GROUP, (queue, name)).fetchone()
            if found is None:
                row = GroupRow(self.queue(queue), name, None, 0, 0, 0, 0, 0, stored=False)
            else:
                row = GroupRow(self.queue(queue), name, *found)
            groups[name] = row
        row.dirty = True
        return row

    def load_groups(self, keys: set[tuple[str, str]]) -> None:
        """Load many groups at once; a statement for all costs half of one for each."""
        by_queue: dict[str, list[str]] = {}
        for queue, name in keys:
            if name not in self._groups.setdefault(queue, {}):
                by_queue.setdefault(queue, []).append(name)
        for queue, names in by_queue.items():
            row, groups = self.queue(queue), self._groups[queue]
            for name, *rest in self._cursor.execute(LOAD_GROUPS, (queue, as_list(names))).fetchall():
                groups[name] = GroupRow(row, name, *rest)

    def line(self, queue: QueueRow, wanted: int) -> list[GroupRow]:
        """The first `wanted` groups in line that have a due job and room of their own."""
        groups = self._groups.setdefault(queue.name, {})
        # Nobody else stands in line when all who wait came just now.
        if sum(fresh.place[0] == queue.name for fresh in self._fresh.values()) < queue.waiting:
            for name, *rest in self._cursor.execute(READ_LINE, (queue.name, wanted + len(groups))).fetchall():
                if name not in groups:
                    groups[name] = GroupRow(queue, name, *rest)
        eligible = [group for group in groups.values() if group.room() > 0]
        eligible.sort(key=_turn)
        return eligible[:wanted]

    def arrive(self, group: GroupRow, count: int = 1) -> None:
        """Due jobs join their group; a group or queue that had none goes to the end of its line."""
        if count <= 0:
            return
        queue = group.queue
        if group.waiting == 0:
            self.turn += 1
            group.turn = self.turn
        if queue.waiting == 0:
            self.turn += 1
            queue.turn = self.turn
        group.waiting += count
        queue.waiting += count
        self.arrived = True

    def leave(self, group: GroupRow) -> None:
        group.waiting -= 1
        group.queue.waiting -= 1

    def delay(self, group: GroupRow, count: int = 1) -> None:
        group.delayed += count
        group.queue.delayed += count
        self.due_known = False

    def run(self, group: GroupRow, count: int = 1) -> None:
        group.running += count
        group.queue.running += count
        if count < 0:
            self.arrived = True  # a slot came free

    def reopen(self, queue: QueueRow) -> None:
        """After the queue's `max_per_group` changed: who has room must be judged anew, for all its groups."""
        self.flush()
        limit = queue.settings.max_per_group
        self._cursor.execute(REOPEN_GROUPS, (limit, limit, queue.name))
        self._groups.clear()
        self.arrived = True

    def bump(self) -> int:
        self.revision += 1
        return self.revision

    def flush(self) -> None:
        if self._fresh:
            self._seat_the_fresh()
        groups = [group for some in self._groups.values() for group in some.values() if group.dirty]
        if groups:
            self._write_groups(groups)
        for queue in self._queues.values():
            values = queue.values()
            if values != queue.saved:
                self._cursor.execute(SAVE_QUEUE, values)
                queue.saved = values
        counter = (self.sequence, self.turn, self.finish, self.revision)
        if counter != self._counter:
            self._cursor.execute(SAVE_COUNTER, counter)
            self._counter = counter

    def _write_groups(self, groups: list[GroupRow]) -> None:
        new, changed, gone = [], [], []
        for group in groups:
            group.dirty = False
            if group.is_empty():
                if group.stored:
                    gone.append((group.queue.name, group.name))
                    group.stored = False
                continue
            key = (group.queue.name, group.name)
            counts = (group.own_limit, group.paused, group.turn, group.waiting, group.delayed, group.running)
            is_open = 1 if group.room() > 0 else 0
            if group.stored:
                changed.append((*counts, is_open, *key))
            else:
                new.append((*key, *counts, is_open))
                group.stored = True
        if changed:
            self._cursor.executemany(UPDATE_GROUP, changed)
        if new:
            self._cursor.executemany(INSERT_GROUP, new)
        if gone:
            self._cursor.executemany(DELETE_GROUP, gone)


def _turn(group: GroupRow) -> int:
    return group.turn


def new_token() -> str:
    """One per exchange: no job is claimed twice in one, so it is one per attempt."""
    return secrets.token_hex(8)
