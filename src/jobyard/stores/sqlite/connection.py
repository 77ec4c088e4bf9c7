"""Connection: the writer and reader threads of one database file, and the caller's own transactions."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from jobyard.domain.job import Job
from jobyard.errors import NotPossible
from jobyard.ports.clock import Clock
from jobyard.stores._shared.errors import not_open
from jobyard.stores._shared.process_guard import ProcessGuard
from jobyard.stores.sqlite.change_watcher import ChangeWatcher
from jobyard.stores.sqlite.database_file import OpenFiles, connect, is_same_file
from jobyard.stores.sqlite.errors import store_closed, translated_errors
from jobyard.stores.sqlite.queue_line import promote
from jobyard.stores.sqlite.sql import SQL
from jobyard.stores.sqlite.transaction import Transaction
from jobyard.stores.sqlite.writer import Writer

T = TypeVar("T")


class Reader:
    """A thread that reads snapshots while the writer goes on, as a write-ahead log allows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = connect(path, "NORMAL", writer=False)
        self._files = OpenFiles(path)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jobyard-sqlite-reader")
        self._closed = False

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise store_closed(self._path)
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._snapshot, work)

    def _snapshot(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run the work in one read transaction, so that all its reads are of the same moment."""
        with translated_errors(self._path):
            self._files.require_same()
            self._connection.execute("BEGIN")
            try:
                return work(self._connection)
            finally:
                self._connection.execute("ROLLBACK")

    def close(self) -> None:
        self._closed = True
        self._thread.shutdown(wait=True)
        self._connection.close()


class Threads(NamedTuple):
    writer: Writer
    reader: Reader
    watcher: ChangeWatcher


class SqliteConnection:
    def __init__(self, path: Path, clock: Clock, synchronous: str) -> None:
        self.path = path
        self.clock = clock
        self.awaited: Counter[str] = Counter()  # ids of jobs whose end is awaited in this process
        self._synchronous = synchronous
        self._threads: Threads | None = None
        self._lock = threading.Lock()
        self._process = ProcessGuard(str(path))

    async def open(self) -> None:
        self._process.opened()
        await asyncio.to_thread(self._open)

    async def close(self) -> None:
        self._process.closed()
        await asyncio.shield(asyncio.to_thread(self._close))

    def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> Coroutine[Any, Any, T]:
        return self.threads.writer.write(work, durable=durable)

    def read(self, work: Callable[[sqlite3.Connection], T]) -> Coroutine[Any, Any, T]:
        return self.threads.reader.read(work)

    async def read_line(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run the work on a snapshot in which due jobs are in line, at least the first MAX_PROMOTED."""
        row = await self.read(lambda connection: connection.execute(SQL["next_delayed"]).fetchone())
        if row is not None and row[0] <= self.clock.now():
            await self.write(lambda _: None, durable=False)
        return await self.read(work)

    def in_transaction_of(self, connection: Any, work: Callable[[Transaction], T]) -> T:
        """Run the work in the caller's own transaction; it takes effect if the caller commits."""
        if not isinstance(connection, sqlite3.Connection):
            raise NotPossible(f"Cannot join this transaction: {type(connection).__name__} is not a sqlite3 connection.")
        if connection.text_factory is not str:
            raise NotPossible("Cannot join this transaction: text_factory of the connection must be str.")
        with translated_errors(self.path):
            if not is_same_file(connection, self.path):
                raise NotPossible(f"Cannot join this transaction: it belongs to another database than {self.path}.")
            if not connection.in_transaction:
                raise NotPossible("Cannot join this transaction: none is open. Execute BEGIN IMMEDIATE first.")
            # In a savepoint, because an error here must not undo the caller's other work.
            connection.execute("SAVEPOINT jobyard")
            try:
                tx = Transaction(connection, self.clock.now())
                promote(tx)
                answer = work(tx)
                tx.flush()
            except BaseException:
                connection.execute("ROLLBACK TO jobyard")
                connection.execute("RELEASE jobyard")
                raise
            connection.execute("RELEASE jobyard")
        return answer

    @property
    def threads(self) -> Threads:
        if self._threads is None:
            raise not_open(str(self.path))
        self._process.require_same()
        return self._threads

    def _open(self) -> None:
        with self._lock:
            if self._threads is None:
                self._threads = self._start()

    def _start(self) -> Threads:
        # The writer creates the file and its schema; the others need both.
        writer = Writer(self.path, self.clock, self._synchronous, self.awaited, self._committed)
        try:
            return Threads(writer, Reader(self.path), ChangeWatcher(self.path, self.clock, writer.last_write_at))
        except BaseException:
            writer.close()
            raise

    def _close(self) -> None:
        with self._lock:
            threads, self._threads = self._threads, None
            for thread in threads or ():
                thread.close()

    def _committed(self, has_work: bool, ended: dict[str, Job | None]) -> None:
        threads = self._threads
        if threads is not None:
            threads.watcher.committed(has_work, ended)
