"""What can be wrong with an SQLite file and the disk below it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from jobyard.ports.store import Finding, Level, Migration
from jobyard.stores.sqlite.connection import version
from jobyard.stores.sqlite.statements import migrations

LOW_BYTES = 1 << 30
EMPTY_BYTES = 100 << 20
# Each checkpoint cuts the log back; one that stays this large has a reader that never ends.
LONG_LOG_BYTES = 512 << 20
MEBIBYTE = 1 << 20
# More than one page, which even a full disk may have left in the file.
PROBE_BYTES = 256 << 10


def file_findings(path: Path) -> Iterator[Finding]:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        present = version(connection)
        damage = [text for (text,) in connection.execute("PRAGMA quick_check(5)") if text != "ok"]
    yield Finding(Level.OK, "schema", f"version {present}, up to date")
    if damage:
        cure = "stop the workers, copy the file away, restore a backup or try sqlite3 … .recover"
        yield Finding(Level.FAIL, "integrity", "; ".join(damage), cure)
    else:
        yield Finding(Level.OK, "integrity", "the file is whole")
    yield _disk(path)
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size > LONG_LOG_BYTES:
        yield Finding(
            Level.WARN,
            "log",
            f"{log.name} has {log.stat().st_size // MEBIBYTE:,} MiB",
            "a process reads for very long and keeps it from being cut back: find it with lsof",
        )


def _disk(path: Path) -> Finding:
    # A log that was long once is written over: a write to the store says nothing of the disk.
    try:
        with tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        says = f"The folder {path.parent} takes no {PROBE_BYTES:,} bytes more ({error.strerror})."
        return Finding(Level.FAIL, "disk", says, "free some space")
    free = shutil.disk_usage(path.parent).free
    says = f"{free // MEBIBYTE:,} MiB free; the file has {path.stat().st_size // MEBIBYTE:,} MiB"
    cure = f"free some space below {path.parent}, or lower keep_completed and keep_failed"
    if free < EMPTY_BYTES:
        return Finding(Level.FAIL, "disk", says, cure)
    return Finding(Level.WARN, "disk", says, cure) if free < LOW_BYTES else Finding(Level.OK, "disk", says)


def known_migrations(path: Path) -> list[Migration]:
    present = 0
    if path.exists():
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            present = version(connection)
    return [Migration(number, name, text, number <= present) for number, name, text in migrations()]
