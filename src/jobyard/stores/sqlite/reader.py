"""One thread reads, beside the writer: a write-ahead log lets both go on."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from jobyard.errors import StoreUnavailable
from jobyard.stores.sqlite.connection import connect, plain_words, require_same_file

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
            raise StoreUnavailable(f"The store {self._path} is closed.")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._snapshot, work)

    def _snapshot(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Everything that one verb reads is from one moment."""
        with plain_words(self._path):
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
