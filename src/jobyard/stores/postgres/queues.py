"""Queues and groups: configure, pause, limit, list, and explain the position of a job."""

from __future__ import annotations

from jobyard.domain.admission import UNLIMITED, Group, Queue, limit_of
from jobyard.domain.explain import JobPosition
from jobyard.domain.instant import Instant
from jobyard.domain.job import QueueSettings
from jobyard.errors import JobNotFound
from jobyard.ports.admin_store import MAX_HEADS_SCANNED, GroupInfo, GroupsInLine, QueueAges, QueueInfo
from jobyard.stores._shared.limits import MAX_COUNTED_AHEAD, MAX_RUNNING_IDS
from jobyard.stores._shared.queue_rows import group_info, queue_info, queue_not_empty, settings_from_row, settings_row
from jobyard.stores.postgres.codec import order_of
from jobyard.stores.postgres.connection import PostgresConnection
from jobyard.stores.postgres.job_rows import load_jobs
from jobyard.stores.postgres.notifier import PostgresNotifier
from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.schedules import live_workers
from jobyard.stores.postgres.statements import Statements

# Due jobs of a queue that have not joined the line yet and are counted as waiting; the rest is counted as delayed.
MAX_COUNTED_DUE = 100_000


class PostgresQueues:
    def __init__(self, connection: PostgresConnection, notifier: PostgresNotifier) -> None:
        self._connection = connection
        self._notifier = notifier

    async def configure(self, queue: str, settings: QueueSettings) -> None:
        await self._connection.fetch_value("configure", self._connection.now(), queue, *settings_row(settings))
        self._notifier.announce_work()
        self._notifier.short_retention.forget()

    async def set_paused(self, queue: str, group: str | None, paused: bool) -> None:
        if group is None:
            await self._connection.fetch_value("pause_queue", queue, paused)
        else:
            await self._connection.fetch_value("set_group", self._connection.now(), queue, group, paused, False, None)
        if not paused:
            self._notifier.announce_work()

    async def set_limit(self, queue: str, group: str, limit: int | None) -> None:
        await self._connection.fetch_value("set_group", self._connection.now(), queue, group, None, True, limit)
        self._notifier.announce_work()

    async def remove_queue(self, queue: str) -> bool:
        is_removed: bool | None = await self._connection.fetch_value("remove_queue", queue)
        if is_removed is None:
            raise queue_not_empty(queue)
        return is_removed

    async def queues(self) -> list[QueueInfo]:
        return [
            queue_info(row[0], settings_from_row(row[1:10]), row[10], row[11:])
            for row in await self._connection.fetch("list_queues", self._connection.now(), MAX_COUNTED_DUE)
        ]

    async def ages(self) -> list[QueueAges]:
        rows = await self._connection.fetch("ages", self._connection.now(), MAX_HEADS_SCANNED)
        return [QueueAges(queue=name, waiting_since=waiting, running_since=running) for name, waiting, running in rows]

    async def groups(self, queue: str, limit: int = 1000, after: str | None = None) -> list[GroupInfo]:
        now = self._connection.now()

        async def read(connection: Connection, statements: Statements) -> list[GroupInfo]:
            row = await connection.fetchrow(statements["load_queue"], queue)
            if row is None:
                return []
            groups = await connection.fetch(statements["list_groups"], now, queue, after, limit, MAX_COUNTED_DUE)
            return [group_info(queue, row[2], group) for group in groups]

        return await self._connection.run_snapshot(read)

    async def line(self, queue: str, limit: int = 100) -> GroupsInLine:
        # New groups take their places in line as they would by a claim.
        await self._connection.fetch_value("fold_in", self._connection.now(), [queue])

        async def read(connection: Connection, statements: Statements) -> GroupsInLine:
            row = await connection.fetchrow(statements["load_queue"], queue)
            if row is None:
                return GroupsInLine((), 0)
            groups = await connection.fetch(statements["list_line"], queue, limit)
            total = await connection.fetchval(statements["count_line"], queue)
            return GroupsInLine(tuple(group_info(queue, row[2], group) for group in groups), total)

        return await self._connection.run_snapshot(read)

    async def position(self, job_id: str) -> JobPosition:
        now = self._connection.now()
        job = await self._connection.load_job(job_id)
        if job is not None:
            # Its group takes its place in line as it would by a claim.
            await self._connection.fetch_value("fold_in", now, [job.queue])
        return await self._connection.run_snapshot(
            lambda connection, statements: read_position(connection, statements, now, job_id)
        )


async def read_position(
    connection: Connection, statements: Statements, clock: Instant | None, job_id: str
) -> JobPosition:
    job = (await load_jobs(connection, statements, clock, [job_id])).get(job_id)
    if job is None:
        raise JobNotFound.of(job_id)
    now: Instant = await connection.fetchval(statements["now"], clock)
    row = await connection.fetchrow(statements["load_queue"], job.queue)
    assert row is not None  # the row of a queue is created before its first job
    name, max_running, max_per_group, paused, turn, running = row
    queue = Queue(name, max_running, max_per_group, paused, running, turn)
    found = await connection.fetchrow(statements["load_group"], job.queue, job.group or "")
    own, is_paused, group_turn, waiting, group_running = found or (None, False, 0, 0, 0)
    group = Group(job.group, own, is_paused, group_running, waiting, group_turn)
    group_name, most, order = job.group or "", MAX_COUNTED_AHEAD + 1, order_of(job.priority, job.sequence)
    jobs_ahead = await connection.fetchval(statements["count_jobs_ahead"], job.queue, group_name, order, most)
    before = group_turn if waiting else UNLIMITED
    groups_ahead = await connection.fetchval(statements["count_groups_ahead"], job.queue, before, group_name, most)
    # The jobs whose end would make room: those of the group, or of the queue when only the queue is full.
    is_full = queue.max_running is not None and queue.running >= queue.max_running
    of_group = None if is_full and group.running < limit_of(queue, group) else job.group or ""
    holders = await connection.fetch(statements["running_ids"], job.queue, of_group, MAX_RUNNING_IDS)
    workers = await live_workers(connection, statements, clock)
    return JobPosition(
        job=job,
        is_due=job.run_at <= now or await connection.fetchval(statements["is_in_line"], job.queue, group_name, order),
        queue=queue,
        group=group,
        ahead_in_group=min(MAX_COUNTED_AHEAD, jobs_ahead),
        groups_ahead=min(MAX_COUNTED_AHEAD, groups_ahead),
        counts_capped=max(jobs_ahead, groups_ahead) > MAX_COUNTED_AHEAD,
        running_ids=tuple(row[0] for row in holders),
        workers=sum(worker.takes(job.queue) for worker in workers),
    )
