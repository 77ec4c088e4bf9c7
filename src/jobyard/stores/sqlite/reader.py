"""Reader thread: reads snapshots while the writer goes on, as a write-ahead log allows."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from jobyard.stores.sqlite.database_file import connect, require_same_file
from jobyard.stores.sqlite.errors import store_closed, translated_errors

T = TypeVar("T")


class Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = connect(path, "NORMAL", writer=False)
        self._inode = path.stat().st_ino
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jobyard-sqlite-reader")
        self._closed = False

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise store_closed(self._path)
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._snapshot, work)

    def _snapshot(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run the work in one read transaction, so that all its reads are of the same moment."""
        with translated_errors(self._path):
            require_same_file(self._path, self._inode)
            self._connection.execute("BEGIN")
            try:
                return work(self._connection)
            finally:
                self._connection.execute("ROLLBACK")

    def close(self) -> None:
        self._closed = True
        self._thread.shutdown(wait=True)
        self._connection.close()
