"""The caller's own transaction: jobs inserted and settled in it count when, and only if, the caller commits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from jobyard.errors import NotPossible
from jobyard.stores.postgres.pool import Connection
from jobyard.stores.postgres.psycopg_connection import PsycopgConnection, is_psycopg
from jobyard.stores.postgres.statements import Statements

HOW = (
    "Pass an asyncpg or psycopg 3 connection with an open transaction, or a SQLAlchemy session or a Django connection "
    "that uses one of them."
)
# Some hosted servers do not let users read the system identifier; database and table must identify them then.
MAY_READ_SYSTEM_IDENTIFIER = "SELECT has_function_privilege('pg_control_system()', 'EXECUTE')"
SYSTEM_IDENTIFIER = "SELECT system_identifier FROM pg_control_system()"
# Poll intervals for an open transaction, growing, and for how long it is polled at all.
FIRST_POLL_SECONDS, MAX_POLL_SECONDS, GIVE_UP_SECONDS = 0.003, 1.0, 600.0


async def driver_connection(transaction: Any) -> Connection:
    if isinstance(transaction, asyncpg.Connection | PoolConnectionProxy):
        return transaction
    if is_psycopg(transaction):
        return PsycopgConnection(transaction)
    # Recognised by attributes, because SQLAlchemy need not be installed.
    if hasattr(transaction, "sync_session"):
        transaction = await transaction.connection()
    if hasattr(transaction, "sync_connection") and hasattr(transaction, "exec_driver_sql"):
        # SQLAlchemy begins the transaction on the server with its first statement.
        await transaction.exec_driver_sql("SELECT 1")
        raw = await transaction.get_raw_connection()
        found = raw.driver_connection
        if isinstance(found, asyncpg.Connection):
            return found
        raise NotPossible(f"Cannot use this session: its driver is {type(found).__module__}, not asyncpg. {HOW}")
    name = f"{type(transaction).__module__}.{type(transaction).__name__}"
    raise NotPossible(f"Cannot use {name} as a transaction. {HOW}")


async def table_identity(connection: Connection, statements: Statements) -> str | None:
    """Identify the table of jobs across databases and servers; None if it is not visible."""
    found: str | None = await connection.fetchval(
        "SELECT concat_ws('/', current_database(), d.oid, c.oid) FROM pg_class c, pg_database d"
        " WHERE c.oid = to_regclass($1) AND d.datname = current_database()",
        f"{statements.quoted}.jobyard_job",
    )
    if found is not None and await connection.fetchval(MAY_READ_SYSTEM_IDENTIFIER):
        found += f"/{await connection.fetchval(SYSTEM_IDENTIFIER)}"
    return found


class CommitWatcher:
    """Polls the status of callers' transactions, so that waiters wake soon after a commit."""

    def __init__(self, poll: Callable[[list[str]], Awaitable[dict[str, str]]], on_commit: Callable[[], None]) -> None:
        self._poll = poll
        self._on_commit = on_commit
        self._open: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._interval = FIRST_POLL_SECONDS

    def watch(self, transaction: str) -> None:
        loop = asyncio.get_running_loop()
        self._open[transaction] = loop.time()
        self._interval = FIRST_POLL_SECONDS
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._open:
            await asyncio.sleep(self._interval)
            self._interval = min(MAX_POLL_SECONDS, self._interval * 1.5)
            try:
                statuses = await self._poll(list(self._open))
            except Exception:
                # Waiters poll for themselves once a second.
                self._open.clear()
                return
            if "committed" in statuses.values():
                self._on_commit()
            for transaction, since in list(self._open.items()):
                if statuses.get(transaction) != "in progress" or loop.time() - since > GIVE_UP_SECONDS:
                    del self._open[transaction]
