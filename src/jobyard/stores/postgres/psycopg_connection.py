"""A caller's psycopg connection with the methods of an asyncpg connection that a caller's transaction needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any


class PsycopgConnection:
    """Statements run in a thread: the driver blocks, and the event loop serves others meanwhile."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def is_in_transaction(self) -> bool:
        """Also before its first statement, with which the driver begins the transaction on the server."""
        import psycopg  # noqa: PLC0415  the caller has it

        status = self._connection.info.transaction_status
        if status is psycopg.pq.TransactionStatus.IDLE:
            return not self._connection.autocommit
        return bool(status is psycopg.pq.TransactionStatus.INTRANS)

    async def fetch(self, query: str, *arguments: Any) -> list[Any]:
        return await asyncio.to_thread(self._fetch, query, arguments)

    async def fetchval(self, query: str, *arguments: Any) -> Any:
        rows = await self.fetch(query, *arguments)
        return rows[0][0] if rows else None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A savepoint."""
        await self.fetch("SAVEPOINT jobyard")
        try:
            yield
        except BaseException:
            await asyncio.shield(self.fetch("ROLLBACK TO SAVEPOINT jobyard"))
            raise
        await self.fetch("RELEASE SAVEPOINT jobyard")

    def _fetch(self, query: str, arguments: tuple[Any, ...]) -> list[Any]:
        import psycopg  # noqa: PLC0415

        # The statements have $1, which this cursor understands. A tuple would be a row, not an array.
        values = [list(value) if isinstance(value, tuple) else value for value in arguments]
        with psycopg.RawCursor(self._connection, row_factory=psycopg.rows.tuple_row) as cursor:
            cursor.execute(query, values or None)
            return [] if cursor.description is None else cursor.fetchall()


def is_psycopg(connection: Any) -> bool:
    module = type(connection).__module__
    return module.partition(".")[0] == "psycopg" and hasattr(connection, "pgconn")
