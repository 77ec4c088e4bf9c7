"""Online backup of a database file: one consistent copy while other processes write."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from jobyard.errors import NotADatabase, NotPossible
from jobyard.stores.sqlite.errors import translated_errors


def back_up(path: Path, target: Path) -> int:
    """Copy the database and check the copy; returns its size in bytes. The target appears when it is complete.

    The copy is of one moment: SQLite reads it in one transaction, beside which writers continue. Nothing is migrated,
    so that a backup before an upgrade is one of the old version.
    """
    if os.path.lexists(target):
        raise NotPossible(f"Cannot write {target}: it exists already. Choose another file, or remove this one.")
    if not target.parent.is_dir():
        raise NotPossible(f"Cannot write {target}: the folder {target.parent} does not exist. Create it first.")
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent)
    except OSError as error:
        raise NotPossible(f"Cannot write {target}: {error.strerror}.") from error
    partial = Path(name)
    try:
        _copy(path, partial)
        os.fsync(descriptor)
        size = os.fstat(descriptor).st_size
        _publish(partial, target)
    finally:
        os.close(descriptor)
        for end in ("", "-journal", "-wal", "-shm"):
            Path(name + end).unlink(missing_ok=True)
    return size


def _copy(path: Path, partial: Path) -> None:
    with (
        translated_errors(path),
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source,
        translated_errors(partial),
        closing(sqlite3.connect(partial, isolation_level=None)) as copy,
    ):
        # In one step: with several, each write of another process would start the copy anew.
        source.backup(copy, pages=-1)
        copy.execute("PRAGMA journal_mode = DELETE")  # everything in one file
        damage = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
    if damage != "ok":
        raise NotADatabase(f"Cannot back up {path}: the file is damaged ({damage}). Restore it from an older backup.")


def _publish(partial: Path, target: Path) -> None:
    """Name the complete copy; a file that appeared meanwhile is not overwritten."""
    try:
        os.link(partial, target)
    except FileExistsError:
        raise NotPossible(f"Cannot write {target}: it exists already. Choose another file.") from None
    except OSError:  # a file system without hard links
        partial.rename(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
