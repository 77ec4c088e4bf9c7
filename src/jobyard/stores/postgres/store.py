"""PostgreSQL store: composition of its parts, and their lifecycle."""

from __future__ import annotations

from functools import partial

from jobyard.ports.clock import Clock
from jobyard.ports.store import Finding, Migration, Store
from jobyard.stores._shared.composed_store import ComposedStore
from jobyard.stores.postgres.audit import audit, repair
from jobyard.stores.postgres.claim import PostgresClaim
from jobyard.stores.postgres.connection import PostgresConnection
from jobyard.stores.postgres.diagnostics import findings
from jobyard.stores.postgres.histories import PostgresHistories
from jobyard.stores.postgres.insert import PostgresInsert
from jobyard.stores.postgres.jobs import PostgresJobs
from jobyard.stores.postgres.leases import PostgresLeases
from jobyard.stores.postgres.notifier import PostgresNotifier
from jobyard.stores.postgres.pool import COMMAND_SECONDS
from jobyard.stores.postgres.queues import PostgresQueues
from jobyard.stores.postgres.records import PostgresRecords
from jobyard.stores.postgres.schedules import PostgresSchedules
from jobyard.stores.postgres.schema import known_migrations
from jobyard.stores.postgres.settle import PostgresSettle


class PostgresStore(ComposedStore):
    """`connections`: the maximum, in addition to one that listens for notifications.

    `pooled`: the URL leads to PgBouncer in transaction mode: nothing is kept in a session, and changes of other
    processes are found by polling. `schema`: where the tables are; the default is the first of the search path.
    """

    has_transactions = True
    is_remote = True

    def __init__(
        self,
        url: str,
        clock: Clock | None = None,
        *,
        connections: int = 10,
        pooled: bool = False,
        schema: str | None = None,
        connection: PostgresConnection | None = None,
    ) -> None:
        connection = connection or PostgresConnection(url, clock, connections=connections, pooled=pooled, schema=schema)
        self._connection = connection
        self.url = connection.url
        notifier = PostgresNotifier(connection)
        claim = PostgresClaim(connection, notifier)
        super().__init__(
            PostgresLeases(connection, notifier, claim),
            notifier,
            PostgresJobs(connection, notifier),
            PostgresQueues(connection, notifier),
            PostgresSchedules(connection, notifier),
            PostgresRecords(connection),
            PostgresHistories(connection, notifier),
        )
        self._inserts = PostgresInsert(connection, notifier, claim)
        self.insert = self._inserts.insert
        self.exchange = claim.exchange
        self.waiting_claims = claim.waiting
        self.settle = PostgresSettle(connection).settle

    async def open(self) -> None:
        await self._connection.open()

    async def close(self) -> None:
        await self._inserts.finish()
        await self._connection.close()

    async def diagnose(self) -> list[Finding]:
        return await self._connection.inspect(findings)

    async def risks(self) -> list[Finding]:
        return []

    async def migrations(self) -> list[Migration]:
        return await self._connection.inspect(partial(known_migrations, url=self.url))

    async def audit(self) -> list[str]:
        return await self._connection.run_snapshot(audit)

    async def repair(self) -> list[str]:
        before = await self.audit()
        if before:
            await self._connection.run(repair, pooled_seconds=COMMAND_SECONDS)
        after = set(await self.audit()) if before else set()
        return [sentence for sentence in before if sentence not in after]

    def for_event_loop(self) -> Store:
        return PostgresStore(self.url, connection=self._connection.for_event_loop())
