"""Notifier: waits for work and for the end of a job."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial

from jobyard.domain.job import Job
from jobyard.errors import JobNotFound
from jobyard.stores._shared.awaited_jobs import ShortRetention
from jobyard.stores.sqlite.codec import json_list, load_job
from jobyard.stores.sqlite.connection import SqliteConnection
from jobyard.stores.sqlite.retention import SOON, register_awaited
from jobyard.stores.sqlite.sql import SQL


class SqliteNotifier:
    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection
        self.short_retention = ShortRetention(lambda: connection.read(removes_soon))

    def has_work(self, queues: Sequence[str]) -> Callable[[sqlite3.Connection], bool]:
        """Return a check for claimable jobs, due jobs, and cancel requests that are new since its first call."""
        statement = SQL["has_work"] if queues else SQL["has_any_work"]
        parameters = (json_list(list(queues)),) if queues else ()
        known_requests: int | None = None

        def check(connection: sqlite3.Connection) -> bool:
            nonlocal known_requests
            if connection.execute(statement, parameters).fetchone():
                return True
            requests: int = connection.execute(SQL["count_cancel_requests"]).fetchone()[0]
            # Only a new request: one that takes long to be heeded would wake all workers again and again.
            if known_requests is not None and requests > known_requests:
                return True
            known_requests = requests
            row = connection.execute(SQL["next_delayed"]).fetchone()
            return bool(row) and row[0] <= self._connection.clock.now()

        return check

    async def wait_for_work(self, queues: Sequence[str], timeout_seconds: float) -> bool:
        check = self.has_work(queues)
        if timeout_seconds <= 0:
            return await self._connection.read(check)
        return await self._connection.threads.watcher.wait_for_work(check, timeout_seconds)

    async def wait_for_end(self, job_id: str, timeout_seconds: float) -> Job | None:
        if timeout_seconds <= 0:
            job = await self._connection.read(lambda reader: load_job(reader, job_id))
            if job is None:
                raise JobNotFound.of(job_id)
            return job if job.state.is_final else None
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        # While the id is listed, the writer of this process keeps the job's end before retention may delete it.
        awaited = self._connection.awaited
        awaited[job_id] += 1
        try:
            if await self.short_retention.is_used():
                # The worker may be in another process.
                register = partial(register_awaited, job_id=job_id, timeout_seconds=timeout_seconds)
                await self._connection.write(register, durable=False)
            left = deadline - asyncio.get_running_loop().time()
            return await self._connection.threads.watcher.wait_for_end(job_id, left)
        finally:
            awaited[job_id] -= 1
            if not awaited[job_id]:
                del awaited[job_id]


def removes_soon(connection: sqlite3.Connection) -> bool:
    return connection.execute(SQL["removes_soon"], SOON).fetchone() is not None
