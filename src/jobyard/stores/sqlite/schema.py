"""Schema migrations of the SQLite store."""

from __future__ import annotations

import sqlite3
from functools import cache
from importlib import resources
from pathlib import Path

from jobyard.errors import NewerSchema
from jobyard.stores.sqlite.database_file import begin
from jobyard.stores.sqlite.errors import translated_errors


@cache
def migrations() -> tuple[tuple[int, str, str], ...]:
    """Return number, name and text of all migrations, in order."""
    folder = resources.files("jobyard.stores.sqlite.migrations")
    found = [
        (int(item.name[:4]), item.name[5:].removesuffix(".sql"), item.read_text("utf-8"))
        for item in folder.iterdir()
        if item.name.endswith(".sql")
    ]
    return tuple(sorted(found))


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Apply missing migrations; safe when several processes do it at once."""
    steps = migrations()
    newest = steps[-1][0]
    with translated_errors(path):
        if schema_version(connection) == newest:
            return
        begin(connection)
        try:
            present = schema_version(connection)
            reject_newer(present, path)
            for number, _, text in steps:
                if number > present:
                    for statement in text.split(";\n"):
                        connection.execute(statement)
                    connection.execute("UPDATE jobyard_schema SET version = ?", (number,))
            connection.execute("COMMIT")
        except BaseException:
            connection.rollback()
            raise


def reject_newer(present: int, path: Path) -> None:
    newest = migrations()[-1][0]
    if present > newest:
        raise NewerSchema(
            f"Cannot open {path}: its schema is version {present}, and this jobyard supports up to {newest}. "
            "Upgrade jobyard, or use another file."
        )


def schema_version(connection: sqlite3.Connection) -> int:
    if connection.in_transaction:
        connection.execute("CREATE TABLE IF NOT EXISTS jobyard_schema (version INTEGER NOT NULL)")
        connection.execute("INSERT INTO jobyard_schema SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM jobyard_schema)")
    elif connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'jobyard_schema'").fetchone() is None:
        return 0
    row = connection.execute("SELECT version FROM jobyard_schema").fetchone()
    return int(row[0]) if row else 0
