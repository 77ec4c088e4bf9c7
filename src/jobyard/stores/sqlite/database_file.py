"""The database file: open connections to it, take its write lock, check that it is still there."""

from __future__ import annotations

import logging
import math
import random
import sqlite3
import time
from pathlib import Path

from jobyard.errors import StoreError, StoreReadOnly, StoreUnavailable
from jobyard.stores.sqlite.errors import translated_errors

log = logging.getLogger("jobyard.store")

# A writer that cannot begin for this long raises; normal waits take a few milliseconds.
LOCK_TIMEOUT_SECONDS = 60.0
# A wait of this length is logged, once: until the timeout nothing else would say why the program stands still.
LOCK_WARNING_SECONDS = 5.0
OLDEST_SQLITE = (3, 35, 0)


def connect(path: Path, synchronous: str, *, writer: bool) -> sqlite3.Connection:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreError(f"Cannot use SQLite {sqlite3.sqlite_version}: jobyard needs 3.35 or newer.")
    if not path.parent.is_dir():
        raise StoreReadOnly(
            f"Cannot open {path}: the folder {path.parent} does not exist. Create it, or choose another path."
        )
    if path.is_dir():
        raise StoreReadOnly(f"Cannot open {path}: it is a folder. Name a file inside it.")
    with translated_errors(path):
        connection = sqlite3.connect(
            path, timeout=LOCK_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise StoreReadOnly(
                    f"Cannot use a write-ahead log for {path} (journal mode {mode}). Check that its folder is writable "
                    "and not on a network file system."
                )
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            # The hot pages are few: heads of groups and the newest rows. A larger cache looks like a memory leak.
            connection.execute(f"PRAGMA cache_size = {-16384 if writer else -4096}")
            connection.execute("PRAGMA temp_store = MEMORY")
            if writer:
                # Larger than the default: fewer, longer checkpoints; the log is truncated after each.
                connection.execute("PRAGMA wal_autocheckpoint = 4000")
                connection.execute("PRAGMA journal_size_limit = 67108864")
                # `begin` waits for the lock instead: SQLite's waits grow to 100 ms and starve under contention.
                connection.execute("PRAGMA busy_timeout = 0")
        except BaseException:
            connection.close()
            raise
    return connection


def begin(connection: sqlite3.Connection, timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> None:
    """Take the write lock, waiting for other processes in short random pauses."""
    pause, deadline, warn_at = 0.0003, 0.0, math.inf
    if connection.in_transaction:
        connection.rollback()  # a rollback that failed earlier must not prevent all later writes
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if (error.sqlite_errorcode & 0xFF) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            now = time.monotonic()
            if not deadline:
                deadline, warn_at = now + timeout_seconds, now + LOCK_WARNING_SECONDS
            if now > deadline:
                raise
            if now >= warn_at:
                warn_at = math.inf
                log.warning(
                    "%s: another process holds the lock. Waiting for it for %g s already, and up to %g s.",
                    file_of(connection),
                    LOCK_WARNING_SECONDS,
                    timeout_seconds,
                )
            # Longer pauses let busy processes starve this one; equal ones make waiting processes collide.
            time.sleep(pause * (0.5 + random.random()))
            pause = min(pause * 1.5, 0.004)
        else:
            return


def is_same_file(connection: sqlite3.Connection, path: Path) -> bool:
    file = file_of(connection)
    return bool(file) and Path(file).samefile(path)


def file_of(connection: sqlite3.Connection) -> str:
    """The path of the database file; empty if it has none."""
    cursor = connection.cursor()
    cursor.row_factory = None
    for _, name, file in cursor.execute("PRAGMA database_list"):
        if name == "main":
            return str(file or "")
    return ""


class OpenFiles:
    """The database file and its write-ahead log, as they were opened; the log stays the same while a connection is."""

    def __init__(self, path: Path) -> None:
        self._files = [(file, file.stat().st_ino) for file in (path, Path(f"{path}-wal"))]

    def require_same(self) -> None:
        """Raise if one was deleted or replaced: writes to the open one would succeed and be lost."""
        for file, inode in self._files:
            try:
                present: int | None = file.stat().st_ino
            except FileNotFoundError:
                present = None
            if present != inode:
                raise StoreUnavailable(
                    f"Cannot use {file}: the file was deleted or replaced. Restart to open the new one."
                )
