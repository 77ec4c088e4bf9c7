"""Translation of SQLite's errors into jobyard's."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from jobyard.errors import BadInput, NotADatabase, NotPossible, StoreError, StoreFull, StoreReadOnly, StoreUnavailable


def store_closed(path: Path) -> StoreUnavailable:
    return StoreUnavailable(f"Cannot use the store {path}: it is closed.")


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.InterfaceError, sqlite3.ProgrammingError, sqlite3.DataError) as error:
        if "created in a thread" in str(error):
            raise NotPossible(
                "Cannot use this connection: it belongs to another thread. Open it with check_same_thread=False; this "
                "is safe because the calling thread waits while the jobs are inserted."
            ) from error
        if "closed" in str(error):
            raise store_closed(path) from error
        raise BadInput(f"Cannot store a value: {error}.") from error
    except sqlite3.Error as error:
        raise translate(error, path) from error
    except UnicodeEncodeError as error:
        raise BadInput(f"Cannot store {error.object!r}: it cannot be encoded as UTF-8.") from error
    except msgspec.DecodeError as error:
        # Pages of a damaged file may be swapped or cut without SQLite noticing.
        raise NotADatabase(
            f"Cannot read {path}: a stored value is damaged ({error}). Restore the file from a backup."
        ) from error


def translate(error: sqlite3.Error, path: Path) -> StoreError:
    text, full_code = str(error), getattr(error, "sqlite_errorcode", 0)
    code = full_code & 0xFF
    if full_code == sqlite3.SQLITE_BUSY_SNAPSHOT:
        return StoreUnavailable(
            f"Cannot write to {path}: another process wrote after this transaction first read. Start the transaction "
            "with BEGIN IMMEDIATE."
        )
    if code == sqlite3.SQLITE_FULL or "disk is full" in text:
        return StoreFull(f"Cannot write to {path}: the disk is full. Nothing was written. Free space and try again.")
    if code == sqlite3.SQLITE_READONLY or "readonly" in text:
        return StoreReadOnly(f"Cannot write to {path}. Check the permissions of the file and of its folder.")
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreReadOnly(
            f"Cannot open {path}. Its folder must exist and be writable: SQLite keeps two files beside the database."
        )
    if code == sqlite3.SQLITE_NOTADB:
        return NotADatabase(f"Cannot open {path}: it is not an SQLite database. Choose another file, or move this one.")
    if code == sqlite3.SQLITE_CORRUPT:
        return NotADatabase(f"Cannot read {path}: the file is damaged ({text}). Restore it from a backup.")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreUnavailable(
            f"Cannot write to {path}: another process holds its lock. Look for a long transaction or a stopped process."
        )
    if code == sqlite3.SQLITE_IOERR:
        # A full disk appears as a failed write on some file systems.
        return StoreFull(f"Cannot read or write {path}: {text}. Check that its disk is present and not full.")
    return StoreError(f"Cannot use {path}: {text}.")
