"""Write transaction: rows of queues and groups are loaded once, changed in memory, and written back once."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Container
from operator import attrgetter
from typing import NamedTuple

from jobyard.domain.instant import FOREVER, Instant
from jobyard.domain.job import Job, QueueSettings
from jobyard.stores.sqlite.codec import json_list
from jobyard.stores.sqlite.queue_rows import GroupRow, StoredQueue
from jobyard.stores.sqlite.sql import SQL

BY_TURN = attrgetter("turn")


class UnwrittenJob(NamedTuple):
    """A due job that was inserted in this transaction and is not in jobyard_ready yet."""

    position: tuple[str, str, int, int]  # the row of jobyard_ready
    claim_row: tuple[object, ...]  # the columns of a claim


class Transaction:
    """Working state of one write transaction; `flush` writes what was changed."""

    __slots__ = (
        "_counter",
        "_groups",
        "_queues",
        "_unwritten",
        "awaited",
        "bare_cursor",
        "connection",
        "due",
        "due_known",
        "ended",
        "entry",
        "finish",
        "has_work",
        "now",
        "revision",
        "sequence",
        "turn",
    )
    sequence: int
    turn: int
    finish: int
    revision: int
    entry: int

    def __init__(self, connection: sqlite3.Connection, now: Instant, awaited: Container[str] = ()) -> None:
        self.connection = connection
        self.bare_cursor = connection.cursor()  # for statements that do not read jobyard_ready
        self.bare_cursor.row_factory = None
        self.now = now
        self.has_work = False  # waiting claims should be tried
        self.awaited = awaited  # ids of jobs whose end is awaited in this process
        self.ended: dict[str, Job | None] = {}  # the awaited jobs that ended in this transaction
        self._queues: dict[str, StoredQueue] = {}
        self._groups: dict[str, dict[str, GroupRow]] = {}  # by queue, then by name
        self._unwritten: dict[int, UnwrittenJob] = {}  # by the identity of the group's row
        *counter, due = self.bare_cursor.execute(SQL["load_counter"]).fetchone()
        self._counter = tuple(counter)
        self.sequence, self.turn, self.finish, self.revision, self.entry = counter
        self.due: Instant | None = due if due is None or due < FOREVER else None  # of the next delayed job
        self.due_known = True

    @property
    def cursor(self) -> sqlite3.Cursor:
        """The cursor for statements about jobs in line: unwritten jobs are written first."""
        if self._unwritten:
            self._write_ready()
        return self.bare_cursor

    def add_unwritten(self, group: GroupRow, job: UnwrittenJob) -> None:
        """Keep the only due job of its group in memory.

        If a waiting claim takes it in this transaction, it never needs to be written to jobyard_ready.
        """
        self._unwritten[id(group)] = job

    def take_unwritten(self, group: GroupRow) -> tuple[object, ...] | None:
        """Remove and return the unwritten job of the group: the columns of a claim."""
        job = self._unwritten.pop(id(group), None)
        return None if job is None else job.claim_row

    def _write_ready(self) -> None:
        rows = sorted(job.position for job in self._unwritten.values())
        self._unwritten.clear()
        self.bare_cursor.executemany(SQL["insert_ready"], rows)

    def queue(self, name: str) -> StoredQueue:
        """Return the row of the queue, created with default settings if it is new."""
        row = self.known_queue(name)
        if row is None:
            row = self._queues[name] = StoredQueue(name, QueueSettings())
        return row

    def known_queue(self, name: str) -> StoredQueue | None:
        row = self._queues.get(name)
        if row is None:
            found = self.bare_cursor.execute(SQL["load_queue"], (name,)).fetchone()
            if found is None:
                return None
            row = self._queues[name] = StoredQueue.load(found)
        return row

    def loaded_queues(self) -> list[str]:
        return list(self._queues)

    def group(self, queue: str, name: str) -> GroupRow:
        groups = self._groups.setdefault(queue, {})
        row = groups.get(name)
        if row is None:
            found = self.bare_cursor.execute(SQL["load_group"], (queue, name)).fetchone()
            row = groups[name] = GroupRow(self.queue(queue), name, *(found or ()))
            row.stored = found is not None
        row.dirty = True
        return row

    def load_groups(self, keys: set[tuple[str, str]]) -> None:
        """Load many groups with one statement, which costs half of one statement per group."""
        by_queue: dict[str, list[str]] = {}
        for queue, name in keys:
            if name not in self._groups.setdefault(queue, {}):
                by_queue.setdefault(queue, []).append(name)
        for queue, names in by_queue.items():
            row, groups = self.queue(queue), self._groups[queue]
            for name, *rest in self.bare_cursor.execute(SQL["load_groups"], (queue, json_list(names))).fetchall():
                groups[name] = GroupRow(row, name, *rest)

    def open_groups(self, queue: StoredQueue, wanted: int) -> list[GroupRow]:
        """Return the first `wanted` groups in line that have a due job and room."""
        groups = self._groups.setdefault(queue.name, {})
        # When all due jobs of the queue are unwritten, no other group can be in line.
        if sum(job.position[0] == queue.name for job in self._unwritten.values()) < queue.waiting:
            first = (queue.name, wanted + len(groups))
            for name, *rest in self.bare_cursor.execute(SQL["list_open_groups"], first).fetchall():
                if name not in groups:
                    groups[name] = GroupRow(queue, name, *rest)
        eligible = [group for group in groups.values() if group.room() > 0]
        eligible.sort(key=BY_TURN)
        return eligible[:wanted]

    def add_due(self, group: GroupRow) -> None:
        """Count a due job of the group; a group or queue that had none goes to the end of its line."""
        queue = group.queue
        if group.waiting == 0:
            self.turn += 1
            group.turn = self.turn
        if queue.waiting == 0:
            self.turn += 1
            queue.turn = self.turn
        group.waiting += 1
        queue.waiting += 1
        self.has_work = True

    def add_delayed(self, group: GroupRow, count: int = 1) -> None:
        group.delayed += count
        group.queue.delayed += count
        self.due_known = False

    def add_running(self, group: GroupRow, count: int = 1) -> None:
        group.running += count
        group.queue.running += count
        if count < 0:
            self.has_work = True  # a slot is free

    def recompute_open(self, queue: StoredQueue) -> None:
        """Recompute which groups have room, after `max_per_group` of the queue changed."""
        self.flush()
        limit = {"queue": queue.name, "max_per_group": queue.settings.max_per_group}
        self.bare_cursor.execute(SQL["update_open_groups"], limit)
        self._groups.clear()
        self.has_work = True

    def forget_rows(self) -> None:
        """Write all rows and load them again when they are used: other statements change them."""
        self.flush()
        self._queues.clear()
        self._groups.clear()

    def bump(self) -> None:
        self.revision += 1

    def flush(self) -> None:
        if self._unwritten:
            self._write_ready()
        groups = [group for some in self._groups.values() for group in some.values() if group.dirty]
        if groups:
            self._write_groups(groups)
        for queue in self._queues.values():
            values = queue.values()
            if values != queue.saved:
                self.bare_cursor.execute(SQL["save_queue"], values)
                queue.saved = values
        counter = (self.sequence, self.turn, self.finish, self.revision, self.entry)
        if counter != self._counter:
            self.bare_cursor.execute(SQL["save_counter"], counter)
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
            self.bare_cursor.executemany(SQL["update_group"], changed)
        if new:
            self.bare_cursor.executemany(SQL["insert_group"], new)
        if gone:
            self.bare_cursor.executemany(SQL["delete_group"], gone)


def new_token() -> str:
    """Return a token for all leases of an exchange: no job is claimed twice in one, so it is unique per attempt."""
    return secrets.token_hex(8)
