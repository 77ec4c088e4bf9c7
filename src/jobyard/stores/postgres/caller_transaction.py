"""The caller's own transaction: jobs that come, and ends that count, when and only if the caller commits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from jobyard.errors import NotPossible
from jobyard.stores.postgres.pool import Connection

HOW = (
    "Hand in an asyncpg connection with an open transaction, or a SQLAlchemy AsyncSession or AsyncConnection "
    "that uses asyncpg."
)
# Some hosted servers keep to themselves which one they are: then database and table must do.
MAY_ASK = "SELECT has_function_privilege('pg_control_system()', 'EXECUTE')"
WHICH_SERVER = "SELECT system_identifier FROM pg_control_system()"
# A transaction that is still open is asked after this soon, then less and less often, and not for ever.
FIRST_LOOK_SECONDS, LONGEST_LOOK_SECONDS, GIVE_UP_SECONDS = 0.003, 1.0, 600.0


async def driver_connection(transaction: Any) -> Connection:
    """The asyncpg connection that carries the caller's transaction."""
    if isinstance(transaction, asyncpg.Connection | PoolConnectionProxy):
        return transaction
    # SQLAlchemy is known by what it can do: it need not be installed.
    if hasattr(transaction, "sync_session"):
        transaction = await transaction.connection()
    if hasattr(transaction, "sync_connection") and hasattr(transaction, "exec_driver_sql"):
        # It begins on the server with the first statement only.
        await transaction.exec_driver_sql("SELECT 1")
        raw = await transaction.get_raw_connection()
        found = raw.driver_connection
        if isinstance(found, asyncpg.Connection):
            return found
        raise NotPossible(f"The session uses {type(found).__module__}, not asyncpg. {HOW}")
    raise NotPossible(f"A {type(transaction).__module__}.{type(transaction).__name__} cannot carry jobs. {HOW}")


async def fingerprint(connection: Connection, table: str) -> str | None:
    """Which table of which database of which server; None if the table cannot be seen."""
    found: str | None = await connection.fetchval(
        "SELECT concat_ws('/', current_database(), d.oid, c.oid) FROM pg_class c, pg_database d"
        " WHERE c.oid = to_regclass($1) AND d.datname = current_database()",
        table,
    )
    if found is not None and await connection.fetchval(MAY_ASK):
        found += f"/{await connection.fetchval(WHICH_SERVER)}"
    return found


class Commits:
    """Asks how the transactions ended that jobs came with, so that who sleeps is woken soon after the commit."""

    def __init__(self, ask: Callable[[list[str]], Awaitable[dict[str, str]]], committed: Callable[[], None]) -> None:
        self._ask = ask
        self._committed = committed
        self._open: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._nap = FIRST_LOOK_SECONDS

    def watch(self, transaction: str) -> None:
        loop = asyncio.get_running_loop()
        self._open[transaction] = loop.time()
        self._nap = FIRST_LOOK_SECONDS
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._look())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while self._open:
            await asyncio.sleep(self._nap)
            self._nap = min(LONGEST_LOOK_SECONDS, self._nap * 1.5)
            try:
                ends = await self._ask(list(self._open))
            except Exception:
                # Others look by themselves within a second.
                self._open.clear()
                return
            if "committed" in ends.values():
                self._committed()
            for transaction, since in list(self._open.items()):
                if ends.get(transaction) != "in progress" or loop.time() - since > GIVE_UP_SECONDS:
                    del self._open[transaction]
