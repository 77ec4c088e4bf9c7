"""Writer thread: operations that arrive together share a transaction and its fsync."""

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
from jobyard.errors import StoreFull
from jobyard.ports.clock import Clock
from jobyard.stores.sqlite.database_file import OpenFiles, begin, connect
from jobyard.stores.sqlite.errors import store_closed, translate, translated_errors
from jobyard.stores.sqlite.queue_line import promote
from jobyard.stores.sqlite.schema import migrate
from jobyard.stores.sqlite.syncer import Syncer, WriteOperation
from jobyard.stores.sqlite.transaction import Transaction

T = TypeVar("T")
log = logging.getLogger("jobyard.store")

# Operations per transaction; with more, the first would wait long for the last.
MAX_BATCH = 512
# Pause before a sync when a waiting claim was just answered: without it the syncer and the worker's event loop wake at
# the same time and the job starts later.
SYNC_DELAY_SECONDS = 0.0004

# Pause between transactions that only move due jobs into line: without it other processes never get the write lock.
LOCK_PAUSE_SECONDS = 0.005


class Withdrawal(NamedTuple):
    """Request to answer a waiting operation as it is."""

    operation: WriteOperation


class RetryWaiting:
    """Request to try the waiting operations again, after a change by another process, or to move more due jobs."""


RETRY = RetryWaiting()


class Writer:
    """Owns the writing connection, and a syncer thread that makes commits durable.

    A commit does not wait for the disk. An operation that must survive a power failure (`durable`: inserts,
    settlements, changes) is answered after the log was synced, outside the write lock and together with all commits
    of the meantime. Claims, renewals and reports are answered at once: a power failure also ends the workers that
    hold the leases, and a job whose claim was lost is PENDING again.
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
        self._inbox: queue.SimpleQueue[WriteOperation | Withdrawal | RetryWaiting | None] = queue.SimpleQueue()
        self._waiting: list[WriteOperation] = []  # claims that wait for work; used by the writer thread only
        self._retried: WriteOperation | None = None  # the waiting operation that runs now
        self._has_due = False  # more jobs are due than the last transaction moved into line
        self._last_write_at = 0.0
        self._connection = connect(path, "OFF" if synchronous == "OFF" else "NORMAL", writer=True)
        try:
            migrate(self._connection, path)
            self._files = OpenFiles(path)
            self._syncer = Syncer(path, _resolve_all) if synchronous == "FULL" else None
        except BaseException:
            self._connection.close()
            raise
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="jobyard-sqlite-writer", daemon=True)
        self._thread.start()

    async def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        self._require_open()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._inbox.put(WriteOperation(work, future, durable))
        return await future

    async def write_when_ready(
        self, work: Callable[[Transaction], T], keeps_waiting: Callable[[T], bool], until: asyncio.Future[None]
    ) -> T:
        """Write; while `keeps_waiting` is true of the answer, run the work again in each transaction that adds work.

        So a new job is claimed by the transaction that inserts it, without a second one.
        """
        self._require_open()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        operation = WriteOperation(work, future, False, keeps_waiting)
        withdrawal = Withdrawal(operation)
        self._inbox.put(operation)
        withdraw = lambda _: self._inbox.put(withdrawal)  # noqa: E731
        until.add_done_callback(withdraw)
        try:
            return await future
        finally:
            until.remove_done_callback(withdraw)
            if future.cancelled():
                self._inbox.put(withdrawal)

    def _require_open(self) -> None:
        if self._closed:
            raise store_closed(self._path)
        if self._syncer is not None and self._syncer.fault is not None:
            raise self._syncer.fault

    def last_write_at(self) -> float:
        """Return the time of the last commit, by the monotonic clock."""
        return self._last_write_at

    def retry_waiting(self) -> None:
        """Try the waiting operations again. May be called from any thread."""
        self._inbox.put(RETRY)

    def close(self) -> None:
        """Finish the operations that were submitted before, then stop."""
        if not self._closed:
            self._closed = True
            self._inbox.put(None)
        self._thread.join()

    def _loop(self) -> None:
        closing = False
        while not closing:
            batch: list[WriteOperation] = []
            withdrawals: list[Withdrawal] = []
            is_retry = False
            item = self._inbox.get()
            while True:
                if item is None:
                    closing = True
                    break
                if isinstance(item, WriteOperation):
                    batch.append(item)
                elif isinstance(item, Withdrawal):
                    withdrawals.append(item)
                else:
                    is_retry = True
                if len(batch) == MAX_BATCH:
                    break
                try:
                    item = self._inbox.get_nowait()
                except queue.Empty:
                    break
            for withdrawal in withdrawals:
                self._withdraw(withdrawal.operation, batch)
            if self._has_due and not batch:
                time.sleep(LOCK_PAUSE_SECONDS)
            if batch or (is_retry and (self._waiting or self._has_due)):
                self._perform(batch, is_retry=is_retry)
        if self._syncer is not None:
            self._syncer.close()
        self._connection.close()
        self._reject_remaining()

    def _reject_remaining(self) -> None:
        """Fail the operations that wait or were submitted while the store closed."""
        remaining = self._waiting
        while not self._inbox.empty():
            item = self._inbox.get()
            if isinstance(item, WriteOperation):
                remaining.append(item)
        for operation in remaining:
            operation.failure = store_closed(self._path)
        _resolve_all(remaining)

    def _withdraw(self, operation: WriteOperation, batch: list[WriteOperation]) -> None:
        """Stop an operation from waiting, before it can claim a job that its caller no longer wants."""
        if operation in self._waiting:
            self._waiting.remove(operation)
            _resolve_all([operation])
        elif operation in batch:
            operation.keeps_waiting = None
            if operation.future.cancelled():
                batch.remove(operation)

    def _perform(self, batch: list[WriteOperation], *, is_retry: bool = False) -> None:
        try:
            tx = self._transact_in_little_space(batch, is_retry)
        except Exception as error:
            if self._fail_retried(error, batch) and not isinstance(error, sqlite3.OperationalError):
                self._perform(batch, is_retry=is_retry)
                return
            # An operational error concerns the file, and so the whole batch; any other concerns one operation.
            if len(batch) > 1 and not isinstance(error, sqlite3.OperationalError):
                # Run each alone, so that it does not fail the others.
                for operation in batch:
                    self._perform([operation])
                return
            for operation in batch:
                operation.failure = self._translated(error)
            _resolve_all(batch)
            return
        self._respond(batch, tx)

    def _respond(self, batch: list[WriteOperation], tx: Transaction) -> None:
        """Resolve committed operations; durable ones after a sync."""
        waiting, self._waiting = self._waiting, []
        done: list[WriteOperation] = []
        durable: list[WriteOperation] = []
        for operation in [*waiting, *batch]:
            if operation.is_waiting:
                self._waiting.append(operation)
            elif operation.durable and self._syncer is not None:
                durable.append(operation)
            else:
                done.append(operation)
        if done:
            _resolve_all(done)
        if tx.has_work or tx.ended:
            try:
                self._committed(tx.has_work, tx.ended)
            except Exception:
                # The transaction is committed: a failed wake-up must neither fail it nor end this thread.
                log.exception("cannot wake waiters")
        if durable and self._syncer is not None:
            if done and self._inbox.empty():
                time.sleep(SYNC_DELAY_SECONDS)
            self._syncer.add(durable)

    def _fail_retried(self, error: Exception, batch: list[WriteOperation]) -> bool:
        """Fail a waiting operation alone, so that the batch that woke it succeeds."""
        operation, self._retried = self._retried, None
        if operation is None:
            return False
        for operations in (self._waiting, batch):
            if operation in operations:
                operations.remove(operation)
        operation.failure = self._translated(error)
        _resolve_all([operation])
        return True

    def _translated(self, error: Exception) -> Exception:
        try:
            with translated_errors(self._path):
                raise error
        except Exception as translated:
            return translated

    def _transact_in_little_space(self, batch: list[WriteOperation], is_retry: bool) -> Transaction:
        try:
            return self._transact(batch, is_retry)
        except sqlite3.OperationalError as error:
            if not isinstance(translate(error, self._path), StoreFull) or not self._reuse_log():
                raise
            self._retried = None
            return self._transact(batch, is_retry)

    def _reuse_log(self) -> bool:
        """Copy the log into the database: the next transaction then overwrites it from its start.

        Without it, a full disk would stop renewals and settlements, which need no more space than they have: the log is
        only copied after a commit.
        """
        try:
            _, size, copied = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error:
            return False
        return bool(size == copied)

    def _transact(self, batch: list[WriteOperation], is_retry: bool) -> Transaction:
        connection = self._connection
        self._files.require_same()
        before: list[tuple[WriteOperation, Any]] = []
        begin(connection)
        try:
            tx = Transaction(connection, self._clock.now(), self._awaited)
            has_more = promote(tx)
            for operation in batch:
                operation.answer = operation.work(tx)
            before = [(operation, operation.answer) for operation in self._waiting]
            if tx.has_work or is_retry:
                self._retry_waiting(tx, batch)
            tx.flush()
            self._last_write_at = time.monotonic()
            connection.execute("COMMIT")
        except BaseException:
            connection.rollback()
            for operation, answer in before:
                # The jobs that it claimed were rolled back.
                operation.answer = answer
            raise
        self._has_due = has_more
        if has_more:
            self._inbox.put(RETRY)  # behind the operations that have arrived meanwhile
        return tx

    def _retry_waiting(self, tx: Transaction, batch: list[WriteOperation]) -> None:
        for operation in [*self._waiting, *(operation for operation in batch if operation.is_waiting)]:
            self._retried = operation
            operation.answer = operation.work(tx)
        self._retried = None


def _resolve_all(batch: list[WriteOperation]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[WriteOperation]] = {}
    for operation in batch:
        by_loop.setdefault(operation.future.get_loop(), []).append(operation)
    for loop, operations in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, operations)
        except RuntimeError:
            log.debug("cannot answer an operation: its event loop is closed")


def _resolve(operations: list[WriteOperation]) -> None:
    for operation in operations:
        if operation.future.done():
            continue
        if operation.failure is not None:
            operation.future.set_exception(operation.failure)
        else:
            operation.future.set_result(operation.answer)
