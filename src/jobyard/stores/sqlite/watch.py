"""Waking sleepers: at once for changes made here, by `PRAGMA data_version` for those of other processes."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jobyard.domain.job import Job
from jobyard.errors import StoreUnavailable
from jobyard.ports.clock import Clock
from jobyard.stores.sqlite.connection import connect
from jobyard.stores.sqlite.notice import Notice
from jobyard.stores.sqlite.statements import sql

log = logging.getLogger("jobyard.store")

NEXT_DELAYED = sql("next_delayed")


class Sleeper:
    """Somebody waiting for a question to be answered with something other than None."""

    __slots__ = ("future", "job_id", "question")

    def __init__(self, question: Callable[[sqlite3.Connection], Any], job_id: str | None) -> None:
        self.question = question
        self.job_id = job_id  # whose end it waits for; None: it waits for work
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def wake(self, answer: Any) -> None:
        try:
            self.future.get_loop().call_soon_threadsafe(self._resolve, answer)
        except RuntimeError:
            log.debug("an event loop was closed before it could be woken")

    def _resolve(self, answer: Any) -> None:
        if not self.future.done():
            self.future.set_result(answer)


class Watch:
    """A thread that looks only while somebody sleeps."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._clock = clock
        self._connection = connect(path, "NORMAL", writer=False)
        self._sleepers: set[Sleeper] = set()
        self._lock = threading.Lock()
        self._somebody = threading.Event()
        self._notice = Notice(Path(f"{path}-wal"))
        self._closing = False
        self._thread = threading.Thread(target=self._loop, name="jobyard-sqlite-watch", daemon=True)
        self._thread.start()

    async def wait(
        self, question: Callable[[sqlite3.Connection], Any], timeout_seconds: float, job_id: str | None = None
    ) -> Any:
        """The first answer that is not None; None after the time."""
        if self._closing:
            raise StoreUnavailable("The store was closed.")
        sleeper = Sleeper(question, job_id)
        with self._lock:
            self._sleepers.add(sleeper)
        self._notice.poke()
        self._somebody.set()
        handle = sleeper.future.get_loop().call_later(max(0.0, timeout_seconds), sleeper._resolve, None)
        try:
            return await sleeper.future
        finally:
            handle.cancel()
            with self._lock:
                self._sleepers.discard(sleeper)
                if not self._sleepers:
                    self._somebody.clear()

    def committed(self, arrived: bool, ended: dict[str, Job | None]) -> None:
        """Called by this process's writer: those it concerns wake at once."""
        if not self._sleepers:
            return
        with self._lock:
            sleepers = list(self._sleepers)
        for sleeper in sleepers:
            if sleeper.job_id is None:
                if arrived:
                    sleeper.wake(True)
            elif ended.get(sleeper.job_id) is not None:
                sleeper.wake(ended[sleeper.job_id])

    def close(self) -> None:
        self._closing = True
        self._somebody.set()
        self._notice.poke()
        self._thread.join()
        self._notice.close()
        self._connection.close()

    def _loop(self) -> None:
        version, due, asked = -1, 0, True
        while not self._closing:
            try:
                present = self._connection.execute("PRAGMA data_version").fetchone()[0]
                if asked or present != version or due <= self._clock.now():
                    version = present
                    row = self._connection.execute(NEXT_DELAYED).fetchone()
                    due = row[0] if row else 1 << 62
                    self._ask_all()
            except sqlite3.Error:
                log.warning("looking for changes failed; trying again", exc_info=True)
                time.sleep(0.5)
            self._somebody.wait()
            asked = self._notice.wait((due - self._clock.now()) / 1000)

    def _ask_all(self) -> None:
        with self._lock:
            sleepers = list(self._sleepers)
        for sleeper in sleepers:
            try:
                answer = sleeper.question(self._connection)
            except Exception as error:
                answer = error
            if answer is not None:
                sleeper.wake(answer)
