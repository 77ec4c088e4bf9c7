"""One schema for many tests: emptying its tables is far cheaper than making them again."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

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


def empty_for(url: str, schema: str, folder: Path) -> None:
    """Empty the schema when another test asks for it than before: one test may open its store several times."""
    if _last.get(schema) != folder:
        statement = EMPTY.format(schema=schema, kept=MIGRATIONS_TABLE)
        failures: list[BaseException] = []
        # In a thread of its own: the caller may be inside an event loop, and is no coroutine.
        thread = threading.Thread(target=_run, args=(url, statement, failures))
        thread.start()
        thread.join()
        for failure in failures:
            raise failure
    _last[schema] = folder


def _run(url: str, statement: str, failures: list[BaseException]) -> None:
    async def body() -> None:
        import asyncpg  # noqa: PLC0415

        connection = await asyncpg.connect(url, statement_cache_size=0)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    try:
        asyncio.run(body())
    except BaseException as error:
        failures.append(error)
