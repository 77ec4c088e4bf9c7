"""One thread writes: operations that meet in the same moment share a transaction and its fsync."""

from __future__ import annotations

import asyncio
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from jobyard.domain.job import Job
from jobyard.errors import StoreUnavailable
from jobyard.ports.clock import Clock
from jobyard.stores.sqlite.connection import begin, connect, migrate, plain_words, require_same_file
from jobyard.stores.sqlite.line import promote
from jobyard.stores.sqlite.syncer import Operation, Syncer
from jobyard.stores.sqlite.transaction import Transaction

T = TypeVar("T")
log = logging.getLogger("jobyard.store")

# Operations that share one transaction at the most; more would make the first wait for the last.
TOGETHER = 512
STARTING_SECONDS = 0.0004


class Recall(NamedTuple):
    """A parked operation should be answered as it is, unless it was answered already."""

    operation: Operation


class Look:
    """Another process changed something: the parked should be tried."""


LOOK = Look()


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
        self._inbox: queue.SimpleQueue[Operation | Recall | Look | None] = queue.SimpleQueue()
        self._parked: list[Operation] = []  # claims that wait for something to claim; the writing thread's own
        self._on_trial: Operation | None = None
        self._wrote_at = 0.0
        self._connection = connect(path, "OFF" if synchronous == "OFF" else "NORMAL", writer=True)
        try:
            migrate(self._connection, path)
            self._inode = path.stat().st_ino
            self._syncer = Syncer(path, _answer) if synchronous == "FULL" else None
        except BaseException:
            self._connection.close()
            raise
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="jobyard-sqlite-writer", daemon=True)
        self._thread.start()

    async def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        self._require_open()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._inbox.put(Operation(work, future, durable))
        return await future

    async def write_in_time(
        self, work: Callable[[Transaction], T], waits_on: Callable[[T], bool], until: asyncio.Future[None]
    ) -> T:
        """As `write`, but while the answer would rather wait it is tried again in each transaction that brings work.

        So a job that arrives is claimed by the very commit that brings it: no second trip, no second commit.
        """
        self._require_open()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        operation = Operation(work, future, False, waits_on)
        recall = Recall(operation)
        self._inbox.put(operation)
        tell = lambda _: self._inbox.put(recall)  # noqa: E731
        until.add_done_callback(tell)
        try:
            return await future
        finally:
            until.remove_done_callback(tell)
            if future.cancelled():
                self._inbox.put(recall)

    def _require_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"The store {self._path} is closed.")
        if self._syncer is not None and self._syncer.fault is not None:
            raise self._syncer.fault

    def own_write_at(self) -> float:
        """When this thread last wrote, by the monotonic clock."""
        return self._wrote_at

    def look(self) -> None:
        self._inbox.put(LOOK)

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
            recalls: list[Recall] = []
            look = False
            item = self._inbox.get()
            while True:
                if item is None:
                    closing = True
                    break
                if isinstance(item, Operation):
                    batch.append(item)
                elif isinstance(item, Recall):
                    recalls.append(item)
                else:
                    look = True
                if len(batch) == TOGETHER:
                    break
                try:
                    item = self._inbox.get_nowait()
                except queue.Empty:
                    break
            for recall in recalls:
                self._recall(recall.operation, batch)
            if batch or (look and self._parked):
                self._perform(batch, look=look)
        if self._syncer is not None:
            self._syncer.close()
        self._connection.close()
        self._refuse_the_late()

    def _refuse_the_late(self) -> None:
        """What was handed in while the door closed gets an answer too."""
        late = self._parked
        while not self._inbox.empty():
            item = self._inbox.get()
            if isinstance(item, Operation):
                late.append(item)
        for operation in late:
            operation.failure = StoreUnavailable(f"The store {self._path} was closed.")
        _answer(late)

    def _recall(self, operation: Operation, batch: list[Operation]) -> None:
        """Before anything else is done: nobody is left to take what it might claim."""
        if operation in self._parked:
            self._parked.remove(operation)
            _answer([operation])
        elif operation in batch:
            operation.waits_on = None
            if operation.future.cancelled():
                batch.remove(operation)

    def _perform(self, batch: list[Operation], *, look: bool = False) -> None:
        try:
            tx = self._transact(batch, look)
        except Exception as error:
            if self._fail_on_trial(error, batch) and not isinstance(error, sqlite3.OperationalError):
                self._perform(batch, look=look)
                return
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
        self._hand_out(batch, tx)

    def _hand_out(self, batch: list[Operation], tx: Transaction) -> None:
        """Answer what is committed; what must survive a power failure goes by the disk first."""
        parked, self._parked = self._parked, []
        done: list[Operation] = []
        durable: list[Operation] = []
        for operation in [*parked, *batch]:
            if operation.is_waiting:
                self._parked.append(operation)
            elif operation.durable and self._syncer is not None:
                durable.append(operation)
            else:
                done.append(operation)
        if done:
            _answer(done)
        if tx.arrived or tx.ended:
            try:
                self._committed(tx.arrived, tx.ended)
            except Exception:
                # It is committed: that nobody could be woken must neither undo it nor end this thread.
                log.exception("waking sleepers failed")
        if durable and self._syncer is not None:
            if done and self._inbox.empty():
                # A job starts here: two threads that wake at once would only get in each other's way.
                time.sleep(STARTING_SECONDS)
            self._syncer.add(durable)

    def _fail_on_trial(self, error: Exception, batch: list[Operation]) -> bool:
        """A parked operation that fails must not take with it those that only came by."""
        operation, self._on_trial = self._on_trial, None
        if operation is None:
            return False
        for those in (self._parked, batch):
            if operation in those:
                those.remove(operation)
        operation.failure = self._plain(error)
        _answer([operation])
        return True

    def _plain(self, error: Exception) -> Exception:
        try:
            with plain_words(self._path):
                raise error
        except Exception as plain:
            return plain

    def _transact(self, batch: list[Operation], look: bool) -> Transaction:
        connection = self._connection
        require_same_file(self._path, self._inode)
        before: list[tuple[Operation, Any]] = []
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
            before = [(operation, operation.answer) for operation in self._parked]
            if tx.arrived or look:
                self._try_the_waiting(tx, batch)
            tx.flush()
            self._wrote_at = time.monotonic()
            connection.execute("COMMIT")
        except BaseException:
            connection.rollback()
            for operation, answer in before:
                # What it was given in this transaction has never been.
                operation.answer = answer
            raise
        return tx

    def _try_the_waiting(self, tx: Transaction, batch: list[Operation]) -> None:
        for operation in [*self._parked, *(one for one in batch if one.is_waiting)]:
            self._on_trial = operation
            operation.answer = operation.work(tx)
        self._on_trial = None


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
