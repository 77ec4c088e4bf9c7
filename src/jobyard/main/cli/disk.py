"""What can be wrong with an SQLite file and the disk below it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from jobyard.errors import StoreFull
from jobyard.main.cli.findings import Finding, Level

LOW_BYTES = 1 << 30
EMPTY_BYTES = 100 << 20
# Each checkpoint cuts the log back; one that stays this large has a reader that never ends.
LONG_LOG_BYTES = 512 << 20
MEBIBYTE = 1 << 20


def file_findings(path: Path) -> Iterator[Finding]:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        version = connection.execute("SELECT version FROM jobyard_schema").fetchone()[0]
        damage = [text for (text,) in connection.execute("PRAGMA quick_check(5)") if text != "ok"]
    yield Finding(Level.OK, "schema", f"version {version}, up to date")
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


def require_room(path: Path, size: int) -> None:
    """Raises StoreFull. A log that was long once is written over: a write there says nothing of the disk."""
    try:
        with tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(bytes(size))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreFull(
            f"The folder {path.parent} takes no {size:,} bytes more ({error.strerror}). Free some space and try again."
        ) from error


def _disk(path: Path) -> Finding:
    free = shutil.disk_usage(path.parent).free
    says = f"{free // MEBIBYTE:,} MiB free; the file has {path.stat().st_size // MEBIBYTE:,} MiB"
    cure = f"free some space below {path.parent}, or lower keep_completed and keep_failed"
    if free < EMPTY_BYTES:
        return Finding(Level.FAIL, "disk", says, cure)
    return Finding(Level.WARN, "disk", says, cure) if free < LOW_BYTES else Finding(Level.OK, "disk", says)
