"""VACUUM of the small hot tables, about once a second, by one process of the fleet.

Autovacuum runs once a minute; by then a busy queue has left a million dead rows in tables of a few hundred live ones.
Without it claims are correct, but slower.
"""

from __future__ import annotations

import asyncio
import logging

from jobyard.stores.postgres.pool import Connection, Pool
from jobyard.stores.postgres.statements import Statements

log = logging.getLogger("jobyard.store")

INTERVAL_SECONDS = 1.0
# Fewer changes than this cost less to skip over than to vacuum.
MIN_CHANGES = 2_000
TABLES = ("lease", "group", "queue", "inbox", "ended")


class Vacuum:
    def __init__(self, pool: Pool, statements: Statements) -> None:
        self._pool = pool
        self._statements = statements
        self._changes = 0
        self._not_before = 0.0
        self._task: asyncio.Task[None] | None = None

    def count(self, changes: int) -> None:
        """Count changed rows; start a run when there were enough."""
        self._changes += changes
        if self._changes < MIN_CHANGES or (self._task is not None and not self._task.done()):
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._not_before:
            self._not_before = loop.time() + INTERVAL_SECONDS
            self._changes = 0
            self._task = loop.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task], timeout=5.0)

    async def _run(self) -> None:
        try:
            if await self._pool.run(self._take_chore):
                await self._pool.run_bare(self._vacuum)
        except Exception:
            log.debug("cannot vacuum; autovacuum will", exc_info=True)

    async def _take_chore(self, connection: Connection) -> bool:
        # A little less than the interval, so that a process that is on time is not refused.
        interval = int(INTERVAL_SECONDS * 900)
        return await connection.fetchval(self._statements["take_chore"], "vacuum", interval) is not None

    async def _vacuum(self, connection: Connection) -> None:
        for table in TABLES:
            # TRUNCATE off, because truncating the file needs a lock that blocks claims.
            name = f"{self._statements.quoted}.jobyard_{table}"
            await connection.execute(f"VACUUM (TRUNCATE off, INDEX_CLEANUP on, SKIP_LOCKED) {name}")
