"""Syncer thread: makes commits durable, with one sync of the log for all commits since the last."""

from __future__ import annotations

import asyncio
import errno
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobyard.errors import StoreUnavailable
from jobyard.stores.sqlite.transaction import Transaction

# On platforms without fdatasync, fsync does the same and also syncs the metadata.
sync_file = getattr(os, "fdatasync", os.fsync)


@dataclass(slots=True, eq=False)
class WriteOperation:
    """Work for the writer thread, and the future of its result."""

    work: Callable[[Transaction], Any]
    future: asyncio.Future[Any]
    durable: bool
    keeps_waiting: Callable[[Any], bool] | None = None  # whether, with this result, it waits and runs again later
    answer: Any = None
    failure: BaseException | None = None

    @property
    def is_waiting(self) -> bool:
        return self.keeps_waiting is not None and self.failure is None and self.keeps_waiting(self.answer)


class Syncer:
    """Does after the commit what `synchronous = FULL` does inside it: the same call on the same file."""

    def __init__(self, path: Path, resolve: Callable[[list[WriteOperation]], None]) -> None:
        self._path = path
        self.fault: StoreUnavailable | None = None  # set once a sync has failed
        self._resolve = resolve
        self._inbox: queue.SimpleQueue[list[WriteOperation] | None] = queue.SimpleQueue()
        # The log stays the same file as long as a connection is open, and the writer's connection is.
        self._log = os.open(f"{path}-wal", os.O_RDWR)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self._thread = threading.Thread(target=self._loop, name="jobyard-sqlite-syncer", daemon=True)
        self._thread.start()

    def add(self, operations: list[WriteOperation]) -> None:
        self._inbox.put(operations)

    def close(self) -> None:
        self._inbox.put(None)
        self._thread.join()
        os.close(self._log)

    def _loop(self) -> None:
        closing = False
        while not closing:
            batch: list[WriteOperation] = []
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

    def _sync(self, batch: list[WriteOperation]) -> None:
        if self.fault is None:
            try:
                sync_file(self._log)
                if os.fstat(self._log).st_nlink == 0:
                    raise OSError(errno.ENOENT, "its write-ahead log was deleted")
            except OSError as error:
                # The kernel reports a lost write once and then forgets it: no later sync proves anything.
                self.fault = StoreUnavailable(
                    f"Cannot write to {self._path}: its disk did not confirm a write ({error}). The last changes may "
                    "be lost, and this process no longer writes. Check the disk, then restart."
                )
        for operation in batch:
            operation.failure = self.fault
        self._resolve(batch)
