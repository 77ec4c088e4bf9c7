"""Checks that a store exists before it is opened: opening would create it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from jobyard.errors import ConfigurationError
from jobyard.ports.store import Store
from jobyard.stores.sqlite import SqliteStore
from jobyard.stores.sqlite.errors import translated_errors


async def require_database(store: Store) -> None:
    """Otherwise a mistyped URL would show an empty store, or change the file of another program."""
    if isinstance(store, SqliteStore) and not store.path.exists():
        raise ConfigurationError(
            f"Database {store.path} not found. Check --store or JOBYARD_STORE; "
            "a worker or `jobyard enqueue` creates a new one."
        )
    await require_tables(store)


async def require_tables(store: Store) -> None:
    if isinstance(store, SqliteStore):
        if store.path.is_file() and not _has_tables(store.path):
            raise ConfigurationError(
                f"{store.path} has no jobyard tables. Check --store or JOBYARD_STORE; "
                "`jobyard enqueue` or a worker with your app creates the tables. Nothing was changed."
            )
        return
    known = await store.migrations()
    if known and not any(migration.applied for migration in known):
        raise ConfigurationError(
            f"{store.url} has no jobyard schema. Check --store or JOBYARD_STORE; "
            "`jobyard migrate`, `jobyard enqueue` or a worker with your app creates it. Nothing was changed."
        )


def _has_tables(path: Path) -> bool:
    """Reads as `immutable` while there is no writer: otherwise SQLite would create its -wal and -shm files."""
    in_use = any(path.with_name(path.name + end).exists() for end in ("-wal", "-journal"))
    uri = f"{path.as_uri()}?mode=ro{'' if in_use else '&immutable=1'}"
    with translated_errors(path), closing(sqlite3.connect(uri, uri=True)) as connection:
        query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'jobyard_schema'"
        return bool(connection.execute(query).fetchone()[0])
