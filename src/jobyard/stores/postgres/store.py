"""The PostgreSQL store, put together from its verbs."""

from __future__ import annotations

from jobyard.ports.store import Finding, Store
from jobyard.stores.postgres.examine import findings
from jobyard.stores.postgres.people import PeopleVerbs
from jobyard.stores.postgres.records import RecordVerbs
from jobyard.stores.postgres.timekeeping import TimekeepingVerbs


class PostgresStore(PeopleVerbs, TimekeepingVerbs, RecordVerbs):
    """`connections`: how many at most, beside one that listens.

    `pooled`: the URL leads to PgBouncer in transaction mode; nothing is then remembered by a session, and changes of
    other processes are found by looking. `schema`: where the tables live; default is where unqualified names lead.
    """

    async def diagnose(self) -> list[Finding]:
        return await self._look(findings)

    def for_event_loop(self) -> Store:
        return PostgresStore(
            self._address,
            self._clock,
            connections=self._connections,
            pooled=self._pooled,
            schema=self._schema,
            parent=self,
        )
