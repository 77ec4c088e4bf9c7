"""Opening a file safely, and saying in plain words what SQLite complains about."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobyard.errors import (
    BadInput,
    NewerSchema,
    NotADatabase,
    NotPossible,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from jobyard.stores.sqlite.statements import migrations

# A writer that cannot begin for this long says so; normal waits are a few milliseconds.
LOCK_PATIENCE_SECONDS = 60.0
OLDEST_SQLITE = (3, 35, 0)


@contextmanager
def plain_words(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours: what happened, why, what to do."""
    try:
        yield
    except (sqlite3.InterfaceError, sqlite3.ProgrammingError, sqlite3.DataError) as error:
        if "created in a thread" in str(error):
            raise NotPossible(
                "This connection belongs to another thread. Open it with check_same_thread=False: the calling thread "
                "waits while the jobs are inserted, so that is safe."
            ) from error
        if "closed" in str(error):
            raise StoreUnavailable(f"The store {path} is closed.") from error
        raise BadInput(f"A value cannot be stored: {error}.") from error
    except sqlite3.Error as error:
        raise translate(error, path) from error
    except UnicodeEncodeError as error:
        raise BadInput(f"{error.object!r} is not text that a database can hold.") from error


def translate(error: sqlite3.Error, path: Path) -> StoreError:
    text, full_code = str(error), getattr(error, "sqlite_errorcode", 0)
    code = full_code & 0xFF
    if full_code == sqlite3.SQLITE_BUSY_SNAPSHOT:
        return StoreUnavailable(
            f"Another process wrote to {path} after this transaction first read. Begin it with BEGIN IMMEDIATE."
        )
    if code == sqlite3.SQLITE_FULL or "disk is full" in text:
        return StoreFull(
            f"No room left on the disk of {path}; nothing was half-written. Free some space and try again."
        )
    if code == sqlite3.SQLITE_READONLY or "readonly" in text:
        return StoreReadOnly(f"{path} cannot be written. Check the permissions of the file and of its folder.")
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreReadOnly(
            f"{path} cannot be opened. Its folder must exist and be writable: SQLite keeps two files beside it."
        )
    if code == sqlite3.SQLITE_NOTADB:
        return NotADatabase(f"{path} is not an SQLite database. Choose another file name, or move this file away.")
    if code == sqlite3.SQLITE_CORRUPT:
        return NotADatabase(f"{path} is damaged ({text}). Restore it from a backup.")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreUnavailable(f"{path} is locked by another process: a long transaction, or a stopped process.")
    if code == sqlite3.SQLITE_IOERR:
        # A full disk shows as a failed write on some file systems.
        return StoreFull(f"The disk of {path} failed a read or write ({text}). Is it full or gone?")
    return StoreError(f"SQLite said of {path}: {text}")


def connect(path: Path, synchronous: str, *, writer: bool) -> sqlite3.Connection:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old; jobyard needs 3.35 or newer.")
    if not path.parent.is_dir():
        raise StoreReadOnly(f"The folder {path.parent} does not exist. Create it, or choose another path.")
    if path.is_dir():
        raise StoreReadOnly(f"{path} is a folder. Name a file inside it.")
    with plain_words(path):
        connection = sqlite3.connect(
            path, timeout=LOCK_PATIENCE_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise StoreReadOnly(
                    f"{path} cannot use a write-ahead log (mode {mode}): a read-only or network folder?"
                )
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            # What is hot is small: heads of groups and the newest rows. A larger cache only looks like a leak.
            connection.execute(f"PRAGMA cache_size = {-16384 if writer else -4096}")
            connection.execute("PRAGMA temp_store = MEMORY")
            if writer:
                # Larger than the default: fewer, longer checkpoints; the log is cut back after each.
                connection.execute("PRAGMA wal_autocheckpoint = 4000")
                connection.execute("PRAGMA journal_size_limit = 67108864")
                # BEGIN IMMEDIATE waits in our own loop; SQLite's grows to 100 ms a nap and starves under contention.
                connection.execute("PRAGMA busy_timeout = 0")
        except BaseException:
            connection.close()
            raise
    return connection


def begin(connection: sqlite3.Connection, patience_seconds: float = LOCK_PATIENCE_SECONDS) -> None:
    """Take the write lock, waiting in short uneven naps for other processes."""
    nap, deadline = 0.0003, 0.0
    if connection.in_transaction:
        connection.rollback()  # a rollback that failed earlier must not be the end of all writing
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if (error.sqlite_errorcode & 0xFF) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            deadline = deadline or time.monotonic() + patience_seconds
            if time.monotonic() > deadline:
                raise
            time.sleep(nap * (0.5 + random.random()))
            nap = min(nap * 1.5, 0.004)
        else:
            return


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the schema up to date; several processes may try at once, one does it."""
    steps = migrations()
    newest = steps[-1][0]
    with plain_words(path):
        if version(connection) == newest:
            return
        begin(connection)
        try:
            present = version(connection)
            if present > newest:
                raise NewerSchema(
                    f"{path} has schema {present}; this jobyard knows {newest}. Upgrade jobyard, or use another file."
                )
            for number, _, text in steps:
                if number > present:
                    for statement in text.split(";\n"):
                        connection.execute(statement)
                    connection.execute("UPDATE jobyard_schema SET version = ?", (number,))
            connection.execute("COMMIT")
        except BaseException:
            connection.rollback()
            raise


def version(connection: sqlite3.Connection) -> int:
    if connection.in_transaction:
        connection.execute("CREATE TABLE IF NOT EXISTS jobyard_schema (version INTEGER NOT NULL)")
        connection.execute("INSERT INTO jobyard_schema SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM jobyard_schema)")
    elif connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'jobyard_schema'").fetchone() is None:
        return 0
    row = connection.execute("SELECT version FROM jobyard_schema").fetchone()
    return int(row[0]) if row else 0


def same_file(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the connection's main database is this file."""
    cursor = connection.cursor()
    cursor.row_factory = None
    for _, name, file in cursor.execute("PRAGMA database_list"):
        if name == "main":
            return bool(file) and Path(file).samefile(path)
    return False


def require_same_file(path: Path, inode: int) -> None:
    """A file that was removed or replaced under our feet takes everything and keeps nothing: say so instead."""
    try:
        present: int | None = path.stat().st_ino
    except FileNotFoundError:
        present = None
    if present != inode:
        raise StoreUnavailable(f"{path} was removed or replaced; restart to use what is there now.")
