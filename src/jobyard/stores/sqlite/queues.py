"""Queues: settings, pauses, limits, counts, ages, and the position of a job in line."""

from __future__ import annotations

import sqlite3

from jobyard.domain.admission import UNLIMITED, Group, Queue
from jobyard.domain.explain import JobPosition
from jobyard.domain.instant import Instant
from jobyard.domain.job import QueueSettings
from jobyard.errors import JobNotFound
from jobyard.ports.admin_store import MAX_HEADS_SCANNED, GroupInfo, GroupsInLine, QueueAges, QueueInfo
from jobyard.stores._shared.limits import MAX_COUNTED_AHEAD, MAX_RUNNING_IDS
from jobyard.stores._shared.queue_rows import group_info, queue_info, queue_not_empty, settings_from_row
from jobyard.stores.sqlite.codec import load_job
from jobyard.stores.sqlite.connection import SqliteConnection
from jobyard.stores.sqlite.notifier import SqliteNotifier
from jobyard.stores.sqlite.queue_rows import StoredQueue
from jobyard.stores.sqlite.schedules import live_workers
from jobyard.stores.sqlite.sql import SQL
from jobyard.stores.sqlite.transaction import Transaction

BEFORE_FIRST_HEAD = ("", -(1 << 62))


class SqliteQueues:
    def __init__(self, connection: SqliteConnection, notifier: SqliteNotifier) -> None:
        self._connection = connection
        self._notifier = notifier

    async def configure(self, queue: str, settings: QueueSettings) -> None:
        await self._connection.write(lambda tx: configure(tx, queue, settings))
        self._notifier.short_retention.forget()

    async def set_paused(self, queue: str, group: str | None, paused: bool) -> None:
        def set_paused(tx: Transaction) -> None:
            row = tx.queue(queue) if group is None else tx.group(queue, group)
            row.paused = int(paused)
            tx.has_work = tx.has_work or not paused
            tx.bump()

        await self._connection.write(set_paused)

    async def set_limit(self, queue: str, group: str, limit: int | None) -> None:
        def set_limit(tx: Transaction) -> None:
            tx.group(queue, group).own_limit = limit
            tx.has_work = True
            tx.bump()

        await self._connection.write(set_limit)

    async def remove_queue(self, queue: str) -> bool:
        return await self._connection.write(lambda tx: remove_queue(tx, queue))

    async def queues(self) -> list[QueueInfo]:
        return await self._connection.read_line(queue_infos)

    async def groups(self, queue: str, limit: int = 1000, after: str | None = None) -> list[GroupInfo]:
        return await self._connection.read_line(lambda reader: group_infos(reader, queue, limit, after))

    async def line(self, queue: str, limit: int = 100) -> GroupsInLine:
        return await self._connection.read_line(lambda reader: group_line(reader, queue, limit))

    async def ages(self) -> list[QueueAges]:
        return await self._connection.read_line(ages)

    async def position(self, job_id: str) -> JobPosition:
        now = self._connection.clock.now()
        return await self._connection.read_line(lambda reader: read_position(reader, job_id, now))


def configure(tx: Transaction, name: str, settings: QueueSettings) -> None:
    queue = tx.queue(name)
    is_limit_changed = queue.settings.max_per_group != settings.max_per_group
    queue.configure(settings)
    if is_limit_changed:
        tx.recompute_open(queue)
    tx.has_work = True
    tx.bump()


def remove_queue(tx: Transaction, name: str) -> bool:
    queue = tx.known_queue(name)
    if queue is None:
        return False
    if queue.waiting or queue.delayed or queue.running or queue.completed or queue.failed or queue.cancelled:
        raise queue_not_empty(name)
    tx.forget_rows()
    for statement in (SQL["delete_queue"], SQL["delete_groups"], SQL["delete_unique_keys"]):
        tx.cursor.execute(statement, (name,))
    tx.bump()
    return True


def queue_infos(connection: sqlite3.Connection) -> list[QueueInfo]:
    rows = connection.execute(SQL["load_queues"])
    return [queue_info(row[0], settings_from_row(row[1:10]), row[10], row[12:]) for row in rows]


def group_infos(connection: sqlite3.Connection, queue: str, limit: int, after: str | None) -> list[GroupInfo]:
    row = connection.execute(SQL["load_queue"], (queue,)).fetchone()
    if row is None:
        return []
    max_per_group = StoredQueue.load(row).settings.max_per_group
    ungrouped = connection.execute(SQL["load_group"], (queue, "")).fetchall() if after is None else []
    rows = [("", own, paused, waiting, delayed, running) for own, paused, _, waiting, delayed, running in ungrouped]
    page = {"queue": queue, "after": after or "", "limit": max(0, limit - len(rows))}
    rows += connection.execute(SQL["list_groups"], page).fetchall()
    return [group_info(queue, max_per_group, row) for row in rows]


def group_line(connection: sqlite3.Connection, queue: str, limit: int) -> GroupsInLine:
    row = connection.execute(SQL["load_queue"], (queue,)).fetchone()
    if row is None:
        return GroupsInLine((), 0)
    max_per_group = StoredQueue.load(row).settings.max_per_group
    rows = connection.execute(SQL["list_line"], {"queue": queue, "limit": limit}).fetchall()
    (total,) = connection.execute(SQL["count_line"], (queue,)).fetchone()
    return GroupsInLine(tuple(group_info(queue, max_per_group, row) for row in rows), total)


def ages(connection: sqlite3.Connection) -> list[QueueAges]:
    running: dict[str, Instant] = dict(connection.execute(SQL["oldest_leases"]))
    found = [StoredQueue.load(row) for row in connection.execute(SQL["load_queues"])]
    waiting = {queue.name: _waiting_since(connection, queue.name) if queue.waiting else None for queue in found}
    return [QueueAges(queue=name, waiting_since=waiting[name], running_since=running.get(name)) for name in waiting]


def _waiting_since(connection: sqlite3.Connection, queue: str) -> Instant | None:
    """Visit the first job of each priority in each group along the index, skipping all jobs behind it."""
    oldest: Instant | None = None
    group, urgency = BEFORE_FIRST_HEAD
    for _ in range(MAX_HEADS_SCANNED):
        row = connection.execute(SQL["next_urgency_head"], (queue, group, urgency)).fetchone()
        if row is None:
            row = connection.execute(SQL["next_group_head"], (queue, group)).fetchone()
        if row is None:
            break
        group, urgency, since = row
        oldest = since if oldest is None else min(oldest, since)
    return oldest


def read_position(connection: sqlite3.Connection, job_id: str, now: Instant) -> JobPosition:
    job = load_job(connection, job_id)
    if job is None:
        raise JobNotFound.of(job_id)
    queue = StoredQueue.load(connection.execute(SQL["load_queue"], (job.queue,)).fetchone())
    name = job.group or ""
    found = connection.execute(SQL["load_group"], (job.queue, name)).fetchone()
    own_limit, paused, turn, waiting, _, running = found or (None, 0, 0, 0, 0, 0)
    cap = MAX_COUNTED_AHEAD
    in_line = {"queue": job.queue, "group": name, "limit": cap + 1}
    key = in_line | {"urgency": -job.priority, "sequence": job.sequence}
    ahead = connection.execute(SQL["count_jobs_ahead"], key).fetchone()[0]
    own_turn = in_line | {"turn": turn if waiting else UNLIMITED}
    groups_ahead = connection.execute(SQL["count_groups_ahead"], own_turn).fetchone()[0]
    limit = own_limit if own_limit is not None else queue.max_per_group if name else UNLIMITED
    if running < limit and queue.running >= queue.max_running:
        holders = connection.execute(SQL["running_in_queue"], (job.queue, MAX_RUNNING_IDS))
    else:
        holders = connection.execute(SQL["running_in_group"], (job.queue, name, MAX_RUNNING_IDS))
    limits = queue.settings
    return JobPosition(
        job=job,
        is_due=job.run_at <= now or connection.execute(SQL["is_in_line"], key).fetchone() is not None,
        queue=Queue(job.queue, limits.max_running, limits.max_per_group, bool(queue.paused), queue.running, queue.turn),
        group=Group(job.group, own_limit, bool(paused), running, waiting, turn),
        ahead_in_group=min(cap, ahead),
        groups_ahead=min(cap, groups_ahead),
        counts_capped=max(ahead, groups_ahead) > cap,
        running_ids=tuple(running_id for (running_id,) in holders),
        workers=sum(worker.takes(job.queue) for worker in live_workers(connection, now)),
    )
