"""SQLite store: composition of its parts, and lifecycle."""

from __future__ import annotations

import asyncio
from pathlib import Path

from jobyard.ports.clock import Clock, SystemClock
from jobyard.ports.store import Finding, Migration, Store
from jobyard.stores._shared.composed_store import ComposedStore
from jobyard.stores.sqlite.audit import audit, repair
from jobyard.stores.sqlite.claim import SqliteClaim
from jobyard.stores.sqlite.connection import SqliteConnection
from jobyard.stores.sqlite.diagnostics import findings, list_migrations
from jobyard.stores.sqlite.histories import SqliteHistories
from jobyard.stores.sqlite.insert import SqliteInsert
from jobyard.stores.sqlite.jobs import SqliteJobs
from jobyard.stores.sqlite.leases import SqliteLeases
from jobyard.stores.sqlite.notifier import SqliteNotifier
from jobyard.stores.sqlite.queues import SqliteQueues
from jobyard.stores.sqlite.records import SqliteRecords
from jobyard.stores.sqlite.schedules import SqliteSchedules
from jobyard.stores.sqlite.settle import SqliteSettle


class SqliteStore(ComposedStore):
    """One database file, used by any number of processes.

    With `synchronous` FULL (the default), what was acknowledged survives a power failure. NORMAL may lose the last
    moments, and OFF may damage the file.
    """

    has_transactions = True
    is_remote = False

    def __init__(self, path: str | Path, clock: Clock | None = None, synchronous: str = "FULL") -> None:
        # Resolved, because SQLite names its log after the file behind a link.
        self.path = Path(path).resolve()
        self.url = f"sqlite:///{path}"
        self._connection = connection = SqliteConnection(self.path, clock or SystemClock(), synchronous.upper())
        notifier = SqliteNotifier(connection)
        super().__init__(
            SqliteLeases(connection),
            notifier,
            SqliteJobs(connection),
            SqliteQueues(connection, notifier),
            SqliteSchedules(connection),
            SqliteRecords(connection),
            SqliteHistories(connection),
        )
        self.insert = SqliteInsert(connection).insert
        self.exchange = SqliteClaim(connection, notifier).exchange
        self.settle = SqliteSettle(connection).settle

    async def open(self) -> None:
        await self._connection.open()

    async def close(self) -> None:
        await self._connection.close()

    async def diagnose(self) -> list[Finding]:
        return await asyncio.to_thread(lambda: list(findings(self.path)))

    async def risks(self) -> list[Finding]:
        return []

    async def migrations(self) -> list[Migration]:
        return await asyncio.to_thread(lambda: list_migrations(self.path))

    async def audit(self) -> list[str]:
        return await self._connection.read(audit)

    async def repair(self) -> list[str]:
        return await self._connection.write(repair)

    def for_event_loop(self) -> Store:
        return self
