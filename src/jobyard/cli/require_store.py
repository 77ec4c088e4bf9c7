"""Is there a jobyard database? Asked before opening, which would make one of whatever file or server was named."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from jobyard.errors import ConfigurationError
from jobyard.ports.store import Store
from jobyard.stores.sqlite import SqliteStore
from jobyard.stores.sqlite.errors import translated_errors


async def require_database(store: Store) -> None:
    """A typing mistake would show an empty store instead of an error, and change another program's file."""
    if isinstance(store, SqliteStore) and not store.path.exists():
        raise ConfigurationError(
            f"There is no database {store.path}. Give the right --store or JOBYARD_STORE; "
            "a worker or `jobyard enqueue` creates a new one."
        )
    await require_tables(store)


async def require_tables(store: Store) -> None:
    if isinstance(store, SqliteStore):
        if store.path.is_file() and not _has_tables(store.path):
            raise ConfigurationError(
                f"{store.path} holds no jobyard tables; `jobyard enqueue` or a worker with your app creates them. "
                "Nothing was changed. Is it the right --store or JOBYARD_STORE?"
            )
        return
    known = await store.migrations()
    if known and not any(migration.applied for migration in known):
        raise ConfigurationError(
            f"{store.url} holds nothing of jobyard yet; `jobyard migrate`, `jobyard enqueue` or a worker with your app "
            "prepares it. Nothing was changed. Is it the right --store or JOBYARD_STORE?"
        )


def _has_tables(path: Path) -> bool:
    """Looks without leaving a trace: even a reader makes SQLite's two side files, unless told that nobody writes."""
    in_use = any(path.with_name(path.name + end).exists() for end in ("-wal", "-journal"))
    uri = f"{path.as_uri()}?mode=ro{'' if in_use else '&immutable=1'}"
    with translated_errors(path), closing(sqlite3.connect(uri, uri=True)) as connection:
        query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'jobyard_schema'"
        return bool(connection.execute(query).fetchone()[0])
