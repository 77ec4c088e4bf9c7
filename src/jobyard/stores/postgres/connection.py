"""What all parts of the PostgreSQL store share: the pool, the statements, the clock and the waiters."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from jobyard.domain.instant import Instant
from jobyard.domain.job import Job
from jobyard.errors import NotPossible
from jobyard.ports.clock import Clock
from jobyard.stores._shared.clock import AdjustableClock
from jobyard.stores._shared.errors import not_open
from jobyard.stores._shared.process_guard import ProcessGuard
from jobyard.stores.postgres.caller_transaction import CommitWatcher, driver_connection, table_identity
from jobyard.stores.postgres.completion_waiters import CompletionPoller
from jobyard.stores.postgres.errors import translated
from jobyard.stores.postgres.job_rows import load_jobs
from jobyard.stores.postgres.listen_notify import ENDS, WORK, NotificationListener, NotificationSender, ProcessWaiters
from jobyard.stores.postgres.pool import ATTEMPTS, COMMAND_SECONDS, POOLED_SECONDS, Connection, Pool
from jobyard.stores.postgres.schema import MIGRATE_SECONDS, find_schema, is_behind, migrate
from jobyard.stores.postgres.statements import Statements
from jobyard.stores.postgres.vacuum import Vacuum

T = TypeVar("T")
Work: TypeAlias = Callable[[Connection, Statements], Awaitable[T]]

# A handle on another event loop serves either renewals and heartbeats, or reclaiming and pruning, one after the other.
SECONDARY_CONNECTIONS = 2
SECRETS = ("password", "sslpassword")  # parameters of a URL


def without_secrets(url: str) -> str:
    """
    >>> without_secrets("postgresql://me:secret@host:5432/jobs?password=secret&sslmode=require")
    'postgresql://me@host:5432/jobs?sslmode=require'
    """
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    name = user.partition(":")[0]
    query = urlencode([(key, value) for key, value in parse_qsl(parts.query) if key not in SECRETS])
    shown = urlunsplit(("", "", parts.path, query, ""))
    return f"{parts.scheme}://{name}{at}{host}{shown}"


class Resources:
    """Pool and background tasks of an open handle, bound to the event loop that opened it."""

    def __init__(self, pool: Pool, statements: Statements, waiters: ProcessWaiters) -> None:
        self.loop = asyncio.get_running_loop()
        self.pool = pool
        self.statements = statements
        self.channel = f"jobyard_{zlib.crc32(statements.schema.encode()):08x}"
        self.sender = NotificationSender(self._notify)
        self.listener = NotificationListener(pool, self.channel, waiters)
        self.vacuum = Vacuum(pool, statements)
        self.commits = CommitWatcher(self._poll_transactions, self._on_commit)
        self.completions = CompletionPoller(waiters.ends, self._poll_ends, lambda: self.listener.is_listening)
        self._waiters = waiters

    async def close(self) -> None:
        await self.completions.close()
        await self.commits.close()
        await self.sender.close()
        await self.listener.close()
        await self.vacuum.close()
        await self.pool.close()

    async def _notify(self, kind: str) -> None:
        payload = f"{kind} {self._waiters.process}"
        await self.pool.run(lambda connection: connection.execute("SELECT pg_notify($1, $2)", self.channel, payload))

    async def _poll_ends(self, ids: list[str]) -> tuple[list[Job], list[str]]:
        """The jobs that have ended, and the ids that do not exist."""

        async def poll(connection: Connection) -> tuple[list[Job], list[str]]:
            rows = await connection.fetch(self.statements["ended_jobs"], ids)
            ended = [row[0] for row in rows if row[1]]
            # The clock matters only for waiting jobs.
            jobs = await load_jobs(connection, self.statements, 0, ended) if ended else {}
            return list(jobs.values()), [row[0] for row in rows if not row[1]]

        return await self.pool.run(poll)

    async def _poll_transactions(self, transactions: list[str]) -> dict[str, str]:
        statement = self.statements["transaction_status"]
        rows = await self.pool.run(lambda connection: connection.fetch(statement, transactions))
        return {row[0]: row[1] for row in rows}

    def _on_commit(self) -> None:
        self._waiters.wake(WORK + ENDS)
        self.sender.send(WORK)
        self.sender.send(ENDS)


async def reset_foreign_cursors(connection: Connection, statements: Statements) -> None:
    """This may be another server than before, with a restored backup: its transaction ids start anew."""
    if await connection.fetchval(statements["has_foreign_cursors"]):
        await connection.execute(statements["reset_foreign_cursors"])


class PostgresConnection:
    """`parent` is the connection of the store that made this handle; they share waiters, not connections."""

    def __init__(
        self,
        url: str,
        clock: Clock | None = None,
        *,
        connections: int = 10,
        pooled: bool = False,
        schema: str | None = None,
        parent: PostgresConnection | None = None,
    ) -> None:
        self.url = without_secrets(url) + (f"?schema={schema}" if schema else "")
        self.pooled = pooled
        self.has_adjustable_clock = isinstance(clock, AdjustableClock)
        self.waiters: ProcessWaiters = ProcessWaiters() if parent is None else parent.waiters
        self._full_url = url
        self._clock = clock
        self._size = connections
        self._schema = schema
        self._parent = parent
        self._process = ProcessGuard(self.url)
        self.opened: Resources | None = None  # None before `open`, and after `close`
        self._table_identity: str | None = None
        self._opening: asyncio.Lock | None = None
        if parent is None and isinstance(clock, AdjustableClock):
            clock.subscribe(self.waiters.work.wake_all)

    def for_event_loop(self) -> PostgresConnection:
        return PostgresConnection(
            self._full_url, self._clock, connections=self._size, pooled=self.pooled, schema=self._schema, parent=self
        )

    async def open(self) -> None:
        self._process.opened()
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self.opened is None:
                pool = self._pool(self._size if self._parent is None else min(SECONDARY_CONNECTIONS, self._size))
                try:
                    # Only a migration may take long; otherwise a pooler that stalls must be noticed soon.
                    seconds = MIGRATE_SECONDS if await pool.run(self._is_behind) else POOLED_SECONDS
                    statements = await pool.run(self._prepare, pooled_seconds=seconds)
                    if not self.pooled:  # a pooler reconnects without telling: there, pruning resets the cursors
                        pool.on_connect = lambda connection: reset_foreign_cursors(connection, statements)
                    self.opened = Resources(pool, statements, self.waiters)
                except BaseException:
                    await pool.close()
                    raise

    async def close(self) -> None:
        self._process.closed()
        resources, self.opened = self.opened, None
        if resources is not None:
            if self._parent is None:
                self.waiters.ends.close()
            await asyncio.shield(resources.close())

    async def _is_behind(self, connection: Connection) -> bool:
        return await is_behind(connection, Statements(await find_schema(connection, self._schema)))

    async def _prepare(self, connection: Connection) -> Statements:
        statements = Statements(await find_schema(connection, self._schema))
        await migrate(connection, statements, self.url)
        await reset_foreign_cursors(connection, statements)
        self._table_identity = await table_identity(connection, statements)
        return statements

    def _pool(self, size: int) -> Pool:
        return Pool(self._full_url, self.url, size=size, pooled=self.pooled)

    def resources(self) -> Resources:
        self._process.require_same()
        opened = self.opened
        if opened is not None and opened.loop is not asyncio.get_running_loop():
            raise NotPossible(
                f"Cannot use the store {self.url} here: it was opened on another event loop. "
                "Open another store on this one, or use its for_event_loop()."
            )
        if opened is None:
            parent = self._parent
            if parent is None or parent.opened is None:
                raise not_open(self.url)
            # A handle that is never opened is never closed either, so it keeps no connection after a call.
            self._table_identity = parent._table_identity
            return Resources(self._pool(0), parent.opened.statements, self.waiters)
        return opened

    async def run(self, work: Work[T], attempts: int = ATTEMPTS, pooled_seconds: float = POOLED_SECONDS) -> T:
        resources = self.resources()
        statements = resources.statements
        return await resources.pool.run(lambda connection: work(connection, statements), attempts, pooled_seconds)

    async def run_snapshot(self, work: Work[T]) -> T:
        """Run `work` in a read-only transaction that sees one snapshot."""
        resources = self.resources()

        async def inside(connection: Connection) -> T:
            if connection.is_in_transaction():
                await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                return await work(connection, resources.statements)
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return await work(connection, resources.statements)

        return await resources.pool.run(inside, pooled_seconds=COMMAND_SECONDS)

    async def inspect(self, work: Work[T]) -> T:
        """Run `work` also when the store is not open, on a connection of its own."""

        async def inside(connection: Connection) -> T:
            return await work(connection, Statements(await find_schema(connection, self._schema)))

        return await (self._pool(0) if self.opened is None else self.resources().pool).run(inside)

    async def run_in(self, transaction: Any, work: Work[T]) -> T:
        resources = self.resources()
        with translated(self.url):
            connection = await driver_connection(transaction)
            if not connection.is_in_transaction():
                raise NotPossible("Cannot use this connection: it has no open transaction. Begin one first.")
            identity = await table_identity(connection, resources.statements)
            if identity != self._table_identity:
                # The server may be another one than at the opening.
                self._table_identity = await self.run(table_identity)
            if identity != self._table_identity:
                raise NotPossible(
                    f"Cannot use this transaction: it belongs to another database. The jobs are in {self.url}."
                )
            # A savepoint: when the work is rejected, the caller's own changes must stay.
            async with connection.transaction():
                answer = await work(connection, resources.statements)
            if self.opened is not None:
                self.opened.commits.watch(await connection.fetchval("SELECT pg_current_xact_id()::text"))
        return answer

    async def fetch_value(self, name: str, *arguments: object) -> Any:
        return await self.run(lambda connection, statements: connection.fetchval(statements[name], *arguments))

    async def fetch(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        return await self.run(lambda connection, statements: connection.fetch(statements[name], *arguments))

    async def load_job(self, job_id: str) -> Job | None:
        now = self.now()
        jobs = await self.run(lambda connection, statements: load_jobs(connection, statements, now, [job_id]))
        return jobs.get(job_id)

    def now(self) -> Instant | None:
        """None: the server's clock decides."""
        return None if self._clock is None else self._clock.now()
