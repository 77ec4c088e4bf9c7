"""Jobs: get, find, change, prune."""

from __future__ import annotations

from collections.abc import Sequence

from jobyard.domain.job import Job
from jobyard.ports.admin_store import Action, Changed, Filter, Page
from jobyard.stores.sqlite.change import change
from jobyard.stores.sqlite.codec import load_job
from jobyard.stores.sqlite.connection import SqliteConnection
from jobyard.stores.sqlite.find import find
from jobyard.stores.sqlite.retention import prune


class SqliteJobs:
    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection

    async def get(self, job_id: str) -> Job | None:
        return await self._connection.read(lambda reader: load_job(reader, job_id))

    async def find(self, where: Filter, limit: int = 50, cursor: str | None = None) -> Page:
        return await self._connection.read(lambda reader: find(reader, where, limit, cursor))

    async def change(self, action: Action, job_ids: Sequence[str], *, reason: str = "", priority: int = 0) -> Changed:
        return await self._connection.write(lambda tx: change(tx, action, job_ids, reason, priority))

    async def prune(self, limit: int = 1000) -> int:
        return await self._connection.write(lambda tx: prune(tx, limit))
