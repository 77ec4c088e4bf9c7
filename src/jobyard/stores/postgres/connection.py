"""What all verbs of the PostgreSQL store stand on: a pool, the statements, a clock, and who sleeps in this process."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from jobyard.domain.instant import Instant
from jobyard.domain.job import Job
from jobyard.errors import NotPossible, StoreUnavailable
from jobyard.ports.clock import Clock
from jobyard.ports.store import Migration
from jobyard.stores._shared.clock import AdjustableClock
from jobyard.stores.postgres.address import without_secrets
from jobyard.stores.postgres.ending import Asker
from jobyard.stores.postgres.housekeeping import Broom
from jobyard.stores.postgres.own import Commits, fingerprint
from jobyard.stores.postgres.pool import ATTEMPTS, COMMAND_SECONDS, POOLED_SECONDS, Connection, Pool
from jobyard.stores.postgres.schema import MIGRATE_SECONDS, find_schema, is_behind, known_migrations, migrate
from jobyard.stores.postgres.seeing import see
from jobyard.stores.postgres.statements import Statements
from jobyard.stores.postgres.waking import CANCEL, ENDS, WORK, Crier, Ear, Family

T = TypeVar("T")

# The keeper's thread renews, beats and prunes, one after the other.
TWIN_CONNECTIONS = 2


class Parts:
    """What an open handle has, on the event loop that opened it."""

    def __init__(self, pool: Pool, statements: Statements, family: Family) -> None:
        self.loop = asyncio.get_running_loop()
        self.pool = pool
        self.statements = statements
        self.channel = f"jobyard_{zlib.crc32(statements.schema.encode()):08x}"
        self.crier = Crier(self._notify)
        self.ear = Ear(pool, self.channel, family)
        self.broom = Broom(pool, statements)
        self.commits = Commits(self._ask_commits, self._committed)
        self.asker = Asker(family.ends, self._ask_ends, lambda: self.ear.is_listening)
        self._family = family

    async def close(self) -> None:
        await self.asker.close()
        await self.commits.close()
        await self.crier.close()
        await self.ear.close()
        await self.broom.close()
        await self.pool.close()

    async def _notify(self, what: str) -> None:
        payload = f"{what} {self._family.name}"
        await self.pool.run(lambda connection: connection.execute("SELECT pg_notify($1, $2)", self.channel, payload))

    async def _ask_ends(self, ids: list[str]) -> tuple[list[Job], list[str]]:
        """Those of them that have ended, and those that are gone."""

        async def ask(connection: Connection) -> tuple[list[Job], list[str]]:
            rows = await connection.fetch(self.statements["ends"], ids)
            ended = [row[0] for row in rows if row[1]]
            # The clock matters to waiting jobs only.
            jobs = await see(connection, self.statements, 0, ended) if ended else {}
            return list(jobs.values()), [row[0] for row in rows if not row[1]]

        return await self.pool.run(ask)

    async def _ask_commits(self, transactions: list[str]) -> dict[str, str]:
        rows = await self.pool.run(
            lambda connection: connection.fetch(
                "SELECT x, pg_xact_status(x::xid8) FROM unnest($1::text[]) x", transactions
            )
        )
        return {row[0]: row[1] for row in rows}

    def _committed(self) -> None:
        self._family.hear(WORK + ENDS)
        self.crier.tell(WORK)
        self.crier.tell(ENDS)


def turned_by_hand(clock: object) -> AdjustableClock | None:
    """The clock if a test turns it: then real time passing means nothing."""
    return clock if isinstance(clock, AdjustableClock) else None


class Desk:
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
        parent: Desk | None = None,
    ) -> None:
        self.url = without_secrets(url) + (f"?schema={schema}" if schema else "")
        self._address = url
        self._clock = clock
        self._connections = connections
        self._pooled = pooled
        self._schema = schema
        self._family: Family = Family() if parent is None else parent._family
        self._parent = parent
        self._parts: Parts | None = None
        self._fingerprint: str | None = None
        self._opening: asyncio.Lock | None = None
        self._by_hand = turned_by_hand(clock)
        if parent is None and self._by_hand is not None:
            self._by_hand.subscribe(self._family.work.wake_all)

    # Open and close

    async def open(self) -> None:
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._parts is None:
                size = self._connections if self._parent is None else min(TWIN_CONNECTIONS, self._connections)
                pool = self._pool(size)
                try:
                    # Only a change of the schema may take long; a pooler that stands still should be noticed soon.
                    seconds = MIGRATE_SECONDS if await pool.run(self._is_behind) else POOLED_SECONDS
                    statements = await pool.run(self._prepare, pooled_seconds=seconds)
                    self._parts = Parts(pool, statements, self._family)
                except BaseException:
                    await pool.close()
                    raise

    async def close(self) -> None:
        parts, self._parts = self._parts, None
        if parts is not None and self._parent is None:
            self._family.ends.close()
        if parts is not None:
            await asyncio.shield(self._finish(parts))

    async def _finish(self, parts: Parts) -> None:
        await parts.close()

    async def _is_behind(self, connection: Connection) -> bool:
        return await is_behind(connection, Statements(await find_schema(connection, self._schema)))

    async def _prepare(self, connection: Connection) -> Statements:
        statements = Statements(await find_schema(connection, self._schema))
        await migrate(connection, statements, self.url)
        if await connection.fetchval(statements["lost_cursors"]):
            # A dump that was restored elsewhere: transactions are numbered anew there.
            await connection.execute(statements["mend_cursors"])
        self._fingerprint = await fingerprint(connection, f"{statements.quoted}.jobyard_job")
        return statements

    async def migrations(self) -> list[Migration]:
        return await self._look(known_migrations)

    async def _look(self, work: Callable[[Connection, Statements], Awaitable[T]]) -> T:
        """Also before the store is open: a connection for this look alone."""

        async def look(connection: Connection) -> T:
            return await work(connection, Statements(await find_schema(connection, self._schema)))

        return await (self._pool(0) if self._parts is None else self._parts.pool).run(look)

    def _pool(self, size: int) -> Pool:
        return Pool(self._address, self.url, size=size, pooled=self._pooled)

    # For the verbs

    def _open_parts(self) -> Parts:
        if self._parts is not None and self._parts.loop is not asyncio.get_running_loop():
            raise NotPossible(
                f"The store {self.url} was opened on another event loop, and its connections belong there. "
                "Open another one here, or use jobyard.BlockingJobyard from threads."
            )
        if self._parts is None:
            parent = self._parent
            if parent is None or parent._parts is None:
                raise StoreUnavailable(f"The store {self.url} is not open: use it inside `async with`.")
            # A twin that nobody opened will not be closed either: it keeps no connection beyond a verb.
            self._fingerprint = parent._fingerprint
            return Parts(self._pool(0), parent._parts.statements, self._family)
        return self._parts

    async def _run(
        self,
        work: Callable[[Connection, Statements], Awaitable[T]],
        attempts: int = ATTEMPTS,
        pooled_seconds: float = POOLED_SECONDS,
    ) -> T:
        parts = self._open_parts()
        return await parts.pool.run(lambda connection: work(connection, parts.statements), attempts, pooled_seconds)

    async def _run_snapshot(self, work: Callable[[Connection, Statements], Awaitable[T]]) -> T:
        """Everything that the work reads is from one moment."""
        parts = self._open_parts()

        async def inside(connection: Connection) -> T:
            if connection.is_in_transaction():
                await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                return await work(connection, parts.statements)
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return await work(connection, parts.statements)

        return await parts.pool.run(inside, pooled_seconds=COMMAND_SECONDS)

    async def _value(self, name: str, *arguments: object) -> object:
        return await self._run(lambda connection, statements: connection.fetchval(statements[name], *arguments))

    async def _rows(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        return await self._run(lambda connection, statements: connection.fetch(statements[name], *arguments))

    def _now(self) -> Instant | None:
        """None: the server's clock decides."""
        return None if self._clock is None else self._clock.now()

    def _arrived(self) -> None:
        """Something may be claimable: who sleeps here wakes at once, the others by a notification."""
        self._family.work.wake_all()
        if self._parts is not None:
            self._parts.crier.tell(WORK)

    def _asked_to_stop(self) -> None:
        self._family.hear(CANCEL)
        if self._parts is not None:
            self._parts.crier.tell(CANCEL)

    def _some_ended(self) -> None:
        """Who waits here for an end that came with an exchange has been told already."""
        if self._parts is not None:
            self._parts.crier.tell(ENDS)
