"""PostgreSQL store: composition of its parts, and their lifecycle."""

from __future__ import annotations

from jobyard.ports.clock import Clock
from jobyard.ports.store import Finding, Migration, Store
from jobyard.stores._shared.bound_verbs import ScheduleAndRecordVerbs
from jobyard.stores.postgres.audit import audit
from jobyard.stores.postgres.claim import PostgresClaim
from jobyard.stores.postgres.connection import PostgresConnection
from jobyard.stores.postgres.diagnostics import findings
from jobyard.stores.postgres.insert import PostgresInsert
from jobyard.stores.postgres.jobs import PostgresJobs
from jobyard.stores.postgres.leases import PostgresLeases
from jobyard.stores.postgres.notifier import PostgresNotifier
from jobyard.stores.postgres.queues import PostgresQueues
from jobyard.stores.postgres.records import PostgresRecords
from jobyard.stores.postgres.schedules import PostgresSchedules
from jobyard.stores.postgres.schema import known_migrations
from jobyard.stores.postgres.settle import PostgresSettle


class PostgresStore(ScheduleAndRecordVerbs):
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
        self._connection = connection or PostgresConnection(
            url, clock, connections=connections, pooled=pooled, schema=schema
        )
        self.url = self._connection.url
        notifier = PostgresNotifier(self._connection)
        super().__init__(PostgresSchedules(self._connection, notifier), PostgresRecords(self._connection))
        self.wait_for_work = notifier.wait_for_work
        self.wait_for_end = notifier.wait_for_end

        claim = PostgresClaim(self._connection, notifier)
        self.exchange = claim.exchange
        self.waiting_claims = claim.waiting

        self._inserts = PostgresInsert(self._connection, notifier, claim)
        self.insert = self._inserts.insert

        self.settle = PostgresSettle(self._connection).settle

        leases = PostgresLeases(self._connection, notifier, claim)
        self.extend = leases.extend
        self.report = leases.report
        self.reclaim = leases.reclaim
        self.adopt = leases.adopt
        self.signal = leases.signal

        jobs = PostgresJobs(self._connection, notifier)
        self.get = jobs.get
        self.find = jobs.find
        self.change = jobs.change
        self.prune = jobs.prune

        queues = PostgresQueues(self._connection, notifier)
        self.configure = queues.configure
        self.set_paused = queues.set_paused
        self.set_limit = queues.set_limit
        self.queues = queues.queues
        self.ages = queues.ages
        self.groups = queues.groups
        self.standing = queues.standing

    async def open(self) -> None:
        await self._connection.open()

    async def close(self) -> None:
        await self._inserts.finish()
        await self._connection.close()

    async def diagnose(self) -> list[Finding]:
        return await self._connection.inspect(findings)

    async def migrations(self) -> list[Migration]:
        return await self._connection.inspect(known_migrations)

    async def audit(self) -> list[str]:
        return await self._connection.run_snapshot(audit)

    def for_event_loop(self) -> Store:
        return PostgresStore(self.url, connection=self._connection.for_event_loop())
