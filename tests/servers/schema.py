"""One schema for many tests: emptying its tables is far cheaper than making them again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

T = TypeVar("T")

# What the migrations themselves wrote down stays.
EMPTY = """
DO $$
DECLARE each record;
BEGIN
  FOR each IN SELECT schemaname, tablename FROM pg_tables WHERE schemaname = '{schema}' AND tablename <> '{kept}'
  LOOP EXECUTE format('DELETE FROM %I.%I', each.schemaname, each.tablename); END LOOP;
  FOR each IN SELECT schemaname, sequencename, start_value FROM pg_sequences WHERE schemaname = '{schema}'
  LOOP EXECUTE format('ALTER SEQUENCE %I.%I RESTART', each.schemaname, each.sequencename); END LOOP;
END $$
"""
MIGRATIONS_TABLE = "jobyard_schema"

_last: dict[str, Path] = {}
_connections: dict[str, _Connection] = {}  # by URL


def empty_for(url: str, schema: str, folder: Path) -> None:
    """Empty the schema when another test asks for it than before: one test may open its store several times."""
    if _last.get(schema) != folder:
        if url not in _connections:
            _connections[url] = _Connection(url)
        _connections[url].run(EMPTY.format(schema=schema, kept=MIGRATIONS_TABLE))
    _last[schema] = folder


class _Connection:
    """Kept for all tests of the process. In a thread of its own: callers may be inside an event loop."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="empty-schema", daemon=True)
        self._thread.start()
        self._connection = self._wait(asyncpg.connect(url, statement_cache_size=0))

    def run(self, statement: str) -> None:
        self._wait(self._connection.execute(statement))

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
