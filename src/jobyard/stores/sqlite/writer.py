"""One thread writes: operations that meet in the same moment share a transaction and its fsync."""

from __future__ import annotations

import asyncio
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any, TypeVar

from jobyard.domain.job import Job
from jobyard.errors import StoreUnavailable
from jobyard.ports.clock import Clock
from jobyard.stores.sqlite.connection import begin, connect, migrate, translate
from jobyard.stores.sqlite.line import promote
from jobyard.stores.sqlite.transaction import Transaction

T = TypeVar("T")
log = logging.getLogger("jobyard.store")

# Operations that share one transaction at the most; more would make the first wait for the last.
TOGETHER = 512


class Operation:
    """A verb on its way: what to do, and who waits for the answer."""

    __slots__ = ("answer", "durable", "failure", "future", "work")

    def __init__(self, work: Callable[[Transaction], Any], future: asyncio.Future[Any], durable: bool) -> None:
        self.work = work
        self.future = future
        self.durable = durable
        self.answer: Any = None
        self.failure: BaseException | None = None


class Writer:
    """Owns the writing connection.

    An operation that must survive a power failure (`durable`: inserts, settlements, changes) commits with the store's
    chosen `synchronous`; claims, renewals and reports commit without waiting for the disk: after a power failure no
    worker is left to hold a lease, and a job whose claim is forgotten is simply PENDING.
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
        self._synchronous = synchronous
        self._awaited = awaited
        self._committed = committed
        self._inbox: queue.SimpleQueue[Operation | None] = queue.SimpleQueue()
        self._connection = connect(path, synchronous, writer=True)
        self._level = synchronous
        try:
            migrate(self._connection, path)
        except BaseException:
            self._connection.close()
            raise
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="jobyard-sqlite-writer", daemon=True)
        self._thread.start()

    async def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        if self._closed:
            raise StoreUnavailable(f"The store {self._path} is closed.")
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
        self._connection.close()

    def _perform(self, batch: list[Operation]) -> None:
        try:
            self._transact(batch)
        except Exception as error:
            if len(batch) > 1:
                # One of them is bad; each alone, so that it takes no other with it.
                for operation in batch:
                    self._perform([operation])
                return
            batch[0].failure = translate(error, self._path) if isinstance(error, sqlite3.Error) else error
        self._answer(batch)

    def _transact(self, batch: list[Operation]) -> None:
        connection = self._connection
        self._choose_level(any(operation.durable for operation in batch))
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
        if tx.arrived or tx.ended:
            self._committed(tx.arrived, tx.ended)

    def _choose_level(self, durable: bool) -> None:
        level = self._synchronous if durable or self._synchronous == "OFF" else "NORMAL"
        if level != self._level:
            self._connection.execute(f"PRAGMA synchronous = {level}")
            self._level = level

    def _answer(self, batch: list[Operation]) -> None:
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
