"""What the SQLite contenders share."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path


def checkpoint(path: Path) -> None:
    """Empty the write-ahead log left by the filling, so that it is not part of the measured time."""
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
