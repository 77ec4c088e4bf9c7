"""One thread writes: operations that meet in the same moment share a transaction and its fsync."""

from __future__ import annotations

import asyncio
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Container
from pathlib import Path
from typing import TypeVar

from jobyard.domain.job import Job
from jobyard.errors import StoreUnavailable
from jobyard.ports.clock import Clock
from jobyard.stores.sqlite.connection import begin, connect, migrate, plain_words
from jobyard.stores.sqlite.line import promote
from jobyard.stores.sqlite.syncer import Operation, Syncer
from jobyard.stores.sqlite.transaction import Transaction

T = TypeVar("T")
log = logging.getLogger("jobyard.store")

# Operations that share one transaction at the most; more would make the first wait for the last.
TOGETHER = 512


class Writer:
    """Owns the writing connection, and a second thread that makes commits durable.

    A commit itself never waits for the disk. An operation that must survive a power failure (`durable`: inserts,
    settlements, changes) is answered only after the log was synced, outside the write lock and together with all that
    committed meanwhile; claims, renewals and reports are answered at once: after a power failure no worker is left to
    hold a lease, and a job whose claim is forgotten is simply PENDING.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        synchronous: str,
        awaited: Container[str],
        committed: Callable[[bool, dict[str, Job | None]], None],
    ) -> None:
        self._path = path
        self._clock = clock
        self._awaited = awaited
        self._committed = committed
        self._inbox: queue.SimpleQueue[Operation | None] = queue.SimpleQueue()
        self._connection = connect(path, "OFF" if synchronous == "OFF" else "NORMAL", writer=True)
        try:
            migrate(self._connection, path)
            self._syncer = Syncer(path, _answer) if synchronous == "FULL" else None
        except BaseException:
            self._connection.close()
            raise
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="jobyard-sqlite-writer", daemon=True)
        self._thread.start()

    async def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        if self._closed:
            raise StoreUnavailable(f"The store {self._path} is closed.")
        if self._syncer is not None and self._syncer.fault is not None:
            raise self._syncer.fault
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._inbox.put(Operation(work, future, durable))
        return await future

    def close(self) -> None:
        """What was handed in before is still done."""
        if not self._closed:
            self._closed = True
            self._inbox.put(None)
        self._thread.join()

    def _loop(self) -> None:
        closing = False
        while not closing:
            batch: list[Operation] = []
            operation = self._inbox.get()
            while True:
                if operation is None:
                    closing = True
                    break
                batch.append(operation)
                if len(batch) == TOGETHER:
                    break
                try:
                    operation = self._inbox.get_nowait()
                except queue.Empty:
                    break
            if batch:
                self._perform(batch)
        if self._syncer is not None:
            self._syncer.close()
        self._connection.close()
        self._refuse_the_late()

    def _refuse_the_late(self) -> None:
        """What was handed in while the door closed gets an answer too."""
        late: list[Operation] = []
        while not self._inbox.empty():
            operation = self._inbox.get()
            if operation is not None:
                operation.failure = StoreUnavailable(f"The store {self._path} was closed.")
                late.append(operation)
        _answer(late)

    def _perform(self, batch: list[Operation]) -> None:
        try:
            tx = self._transact(batch)
        except Exception as error:
            # Trouble with the file concerns them all; anything else is one bad operation.
            if len(batch) > 1 and not isinstance(error, sqlite3.OperationalError):
                # Each alone, so that it takes no other with it.
                for operation in batch:
                    self._perform([operation])
                return
            for operation in batch:
                operation.failure = self._plain(error)
            _answer(batch)
            return
        if tx.arrived or tx.ended:
            try:
                self._committed(tx.arrived, tx.ended)
            except Exception:
                # It is committed: that nobody could be woken must neither undo it nor end this thread.
                log.exception("waking sleepers failed")
        if self._syncer is None:
            _answer(batch)
            return
        durable = [operation for operation in batch if operation.durable]
        if durable:
            self._syncer.add(durable)
        if len(durable) < len(batch):
            _answer([operation for operation in batch if not operation.durable])

    def _plain(self, error: Exception) -> Exception:
        try:
            with plain_words(self._path):
                raise error
        except Exception as plain:
            return plain

    def _transact(self, batch: list[Operation]) -> Transaction:
        connection = self._connection
        begin(connection)
        try:
            tx = Transaction(connection, self._clock.now(), self._awaited)
            while promote(tx):
                tx.flush()
                connection.execute("COMMIT")
                begin(connection)
                tx = Transaction(connection, self._clock.now(), self._awaited)
            for operation in batch:
                operation.answer = operation.work(tx)
            tx.flush()
            connection.execute("COMMIT")
        except BaseException:
            connection.rollback()
            raise
        return tx


def _answer(batch: list[Operation]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[Operation]] = {}
    for operation in batch:
        by_loop.setdefault(operation.future.get_loop(), []).append(operation)
    for loop, operations in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, operations)
        except RuntimeError:
            log.debug("an event loop was closed before its answer came")


def _resolve(operations: list[Operation]) -> None:
    for operation in operations:
        if operation.future.done():
            continue
        if operation.failure is not None:
            operation.future.set_exception(operation.failure)
        else:
            operation.future.set_result(operation.answer)
