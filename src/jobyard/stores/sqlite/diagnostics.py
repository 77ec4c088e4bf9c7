"""Diagnostics of the SQLite file and its disk."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from jobyard.ports.store import Finding, Level, Migration
from jobyard.stores.sqlite.schema import migrations, reject_newer, schema_version

LOW_BYTES = 1 << 30
CRITICAL_BYTES = 100 << 20
# Each checkpoint truncates the log; if it stays this large, a reader keeps a transaction open.
MAX_LOG_BYTES = 512 << 20
MEBIBYTE = 1 << 20
# More than one page: a full disk may still have room for one.
PROBE_BYTES = 256 << 10


def findings(path: Path) -> Iterator[Finding]:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        present = schema_version(connection)
        damage = [text for (text,) in connection.execute("PRAGMA quick_check(5)") if text != "ok"]
    yield Finding(Level.OK, "schema", f"version {present}, up to date")
    if damage:
        remedy = "stop the workers, copy the file, then restore a backup or try `sqlite3 <file> .recover`"
        yield Finding(Level.FAIL, "integrity", "; ".join(damage), remedy)
    else:
        yield Finding(Level.OK, "integrity", "no damage found")
    yield _disk(path)
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
        yield Finding(
            Level.WARN,
            "log",
            f"{log.name} is {log.stat().st_size // MEBIBYTE:,} MiB long",
            "a process keeps a read transaction open and prevents truncation: find it with lsof",
        )


def _disk(path: Path) -> Finding:
    # A write to the store proves nothing: it may reuse space of a log that was longer before.
    try:
        with tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        says = f"cannot write {PROBE_BYTES:,} bytes to {path.parent}: {error.strerror}"
        return Finding(Level.FAIL, "disk", says, "free disk space")
    free = shutil.disk_usage(path.parent).free
    size = path.stat().st_size // MEBIBYTE
    says = f"{free // MEBIBYTE:,} MiB free; file size: {f'{size:,}' if size else 'under 1'} MiB"
    remedy = f"free disk space below {path.parent}, or lower keep_completed and keep_failed"
    if free < CRITICAL_BYTES:
        return Finding(Level.FAIL, "disk", says, remedy)
    return Finding(Level.WARN, "disk", says, remedy) if free < LOW_BYTES else Finding(Level.OK, "disk", says)


def list_migrations(path: Path) -> list[Migration]:
    present = 0
    if path.exists():
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            present = schema_version(connection)
    reject_newer(present, path)
    return [Migration(number, name, text, number <= present) for number, name, text in migrations()]
