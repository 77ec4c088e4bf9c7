"""One schema for many tests: its tables are emptied, not made again, and its audit keeps its plans."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

from jobyard.stores.postgres import audit as postgres_audit
from jobyard.stores.postgres.statements import Statements
from tests.servers import shared

T = TypeVar("T")

# What the migrations themselves wrote down stays. A session that its client has left may still be at work.
EMPTY = """
DO $$
DECLARE each record;
BEGIN
  WHILE EXISTS (SELECT FROM pg_stat_activity
                WHERE application_name = 'jobyard' AND state <> 'idle' AND datname = current_database())
  LOOP PERFORM pg_sleep(0.005), pg_stat_clear_snapshot(); END LOOP;
  FOR each IN SELECT schemaname, tablename FROM pg_tables WHERE schemaname = '{schema}' AND tablename <> '{kept}'
  LOOP EXECUTE format('DELETE FROM %I.%I', each.schemaname, each.tablename); END LOOP;
  FOR each IN SELECT schemaname, sequencename, start_value FROM pg_sequences WHERE schemaname = '{schema}'
  LOOP EXECUTE format('ALTER SEQUENCE %I.%I RESTART', each.schemaname, each.sequencename); END LOOP;
END $$
"""
MIGRATIONS_TABLE = "jobyard_schema"

_last: dict[str, Path] = {}
_unused: dict[str, list[str]] = {}  # by URL: schemas that a test has left empty
_connections: dict[str, _Connection] = {}  # by URL


def empty_for(url: str, schema: str, folder: Path) -> None:
    """Empty the schema when another test asks for it than before: one test may open its store several times."""
    if _last.get(schema) != folder:
        _connection(url).execute(EMPTY.format(schema=schema, kept=MIGRATIONS_TABLE))
    _last[schema] = folder


@contextmanager
def reused_schema(url: str) -> Iterator[str]:
    """A schema that is empty, and new only when all earlier ones are in use or a test failed in them.

    Not for tests that change tables, or that count pages: deleted rows still take up some.
    """
    unused = _unused.setdefault(url, [])
    schema = unused.pop() if unused else f"{shared.RUN}_{secrets.token_hex(4)}"
    yield schema
    _connection(url).execute(EMPTY.format(schema=schema, kept=MIGRATIONS_TABLE))
    unused.append(schema)


async def audit(url: str, schema: str) -> list[str]:
    """As the audit of a store of this schema, which would plan its statements anew for each test."""
    return await asyncio.wrap_future(_connection(url).audit(schema))


def _connection(url: str) -> _Connection:
    if url not in _connections:
        _connections[url] = _Connection(url)
    return _connections[url]


class _Connection:
    """Kept for all tests of the process. In a thread of its own: callers may be inside an event loop."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="empty-schema", daemon=True)
        self._thread.start()
        self._connection = self._wait(asyncpg.connect(url, max_cached_statement_lifetime=0))

    def execute(self, statement: str) -> None:
        self._wait(self._connection.execute(statement))

    def audit(self, schema: str) -> Future[list[str]]:
        return asyncio.run_coroutine_threadsafe(self._audit(Statements(schema)), self._loop)

    async def _audit(self, statements: Statements) -> list[str]:
        async with self._connection.transaction(isolation="repeatable_read", readonly=True):
            return await postgres_audit.audit(self._connection, statements)

    def close(self) -> None:
        self._wait(self._connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)


def close_connections() -> None:
    while _connections:
        _connections.popitem()[1].close()
