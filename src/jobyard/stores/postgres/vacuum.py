"""Dead rows of the small hot tables are cleared about once a second by one process of the fleet.

Autovacuum wakes once a minute; by then a busy queue has left a million dead rows in tables that hold a few hundred.
Nothing depends on it: without it claims are right, and slower.
"""

from __future__ import annotations

import asyncio
import logging

from jobyard.stores.postgres.pool import Connection, Pool
from jobyard.stores.postgres.statements import Statements

log = logging.getLogger("jobyard.store")

EVERY_SECONDS = 1.0
# Fewer changes than this are not worth a look.
WORTH_IT = 2_000
TABLES = ("lease", "group", "queue", "inbox")


class Broom:
    def __init__(self, pool: Pool, statements: Statements) -> None:
        self._pool = pool
        self._statements = statements
        self._changes = 0
        self._next = 0.0
        self._task: asyncio.Task[None] | None = None

    def count(self, changes: int) -> None:
        self._changes += changes
        if self._changes < WORTH_IT or (self._task is not None and not self._task.done()):
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._next:
            self._next = loop.time() + EVERY_SECONDS
            self._changes = 0
            self._task = loop.create_task(self._sweep())

    async def close(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task], timeout=5.0)

    async def _sweep(self) -> None:
        try:
            if await self._pool.run(self._take_chore):
                await self._pool.alone(self._vacuum)
        except Exception:
            log.debug("vacuuming failed; autovacuum does it later", exc_info=True)

    async def _take_chore(self, connection: Connection) -> bool:
        every = int(EVERY_SECONDS * 900)
        return await connection.fetchval(self._statements["take_chore"], "vacuum", every) is not None

    async def _vacuum(self, connection: Connection) -> None:
        for table in TABLES:
            # A plain statement outside of any transaction; cutting the file would need a lock that claims wait for.
            name = f"{self._statements.quoted}.jobyard_{table}"
            await connection.execute(f"VACUUM (TRUNCATE off, INDEX_CLEANUP on, SKIP_LOCKED) {name}")
