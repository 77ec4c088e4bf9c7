"""Makes commits durable: one sync of the log for all that committed since the last."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jobyard.errors import StoreUnavailable
from jobyard.stores.sqlite.transaction import Transaction

# Where the platform has no fdatasync, fsync does the same and a little more.
_sync = getattr(os, "fdatasync", os.fsync)


class Operation:
    """A verb on its way: what to do, and who waits for the answer."""

    __slots__ = ("answer", "durable", "failure", "future", "waits_on", "work")

    def __init__(
        self,
        work: Callable[[Transaction], Any],
        future: asyncio.Future[Any],
        durable: bool,
        waits_on: Callable[[Any], bool] | None = None,
    ) -> None:
        self.work = work
        self.future = future
        self.durable = durable
        self.waits_on = waits_on  # whether, with this answer, it would rather be asked again later
        self.answer: Any = None
        self.failure: BaseException | None = None

    @property
    def is_waiting(self) -> bool:
        return self.waits_on is not None and self.failure is None and self.waits_on(self.answer)


class Syncer:
    """What `synchronous = FULL` does inside the commit, done after it, by the same call on the same file."""

    def __init__(self, path: Path, answer: Callable[[list[Operation]], None]) -> None:
        self._path = path
        self.fault: StoreUnavailable | None = None  # once a sync has failed
        self._answer = answer
        self._inbox: queue.SimpleQueue[list[Operation] | None] = queue.SimpleQueue()
        # The log stays the same file for as long as a connection is open, and the writer's is.
        self._log = os.open(f"{path}-wal", os.O_RDWR)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self._thread = threading.Thread(target=self._loop, name="jobyard-sqlite-syncer", daemon=True)
        self._thread.start()

    def add(self, operations: list[Operation]) -> None:
        self._inbox.put(operations)

    def close(self) -> None:
        self._inbox.put(None)
        self._thread.join()
        os.close(self._log)

    def _loop(self) -> None:
        closing = False
        while not closing:
            batch: list[Operation] = []
            operations = self._inbox.get()
            while True:
                if operations is None:
                    closing = True
                    break
                batch += operations
                try:
                    operations = self._inbox.get_nowait()
                except queue.Empty:
                    break
            if batch:
                self._sync(batch)

    def _sync(self, batch: list[Operation]) -> None:
        if self.fault is None:
            try:
                _sync(self._log)
            except OSError as error:
                # The system tells of a lost write once and then forgets it: nothing after it can be vouched for.
                self.fault = StoreUnavailable(
                    f"The disk of {self._path} did not confirm a write ({error}): the last changes may or may not be "
                    "kept. This process writes no more; check the disk, then restart."
                )
        for operation in batch:
            operation.failure = self.fault
        self._answer(batch)
