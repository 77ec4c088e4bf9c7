"""Change watcher thread: wakes waiters at once for commits of this process, and by `PRAGMA data_version` for others."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobyard.domain.job import Job
from jobyard.errors import JobNotFound
from jobyard.ports.clock import Clock
from jobyard.stores.sqlite.codec import json_list, load_job
from jobyard.stores.sqlite.database_file import connect
from jobyard.stores.sqlite.errors import store_closed
from jobyard.stores.sqlite.file_watcher import FileWatcher
from jobyard.stores.sqlite.sql import SQL

log = logging.getLogger("jobyard.store")


# Commits of other processes are followed by a query for the awaited jobs of all waiters. With few waiters it runs after
# each change; with many it runs so rarely that it takes a twentieth of the thread's time, but at least this often.
MAX_ENDED_PAUSE_SECONDS = 0.02
ENDED_PAUSE_PER_SECOND = 20.0
NEVER = 1 << 62
# After a commit of this process the watcher pauses: the writer has woken all waiters here, and polling at the same
# time would take processor time from the jobs that start.
OWN_COMMIT_PAUSE_SECONDS = 0.002
RETRY_SECONDS = 0.5

Check = Callable[[sqlite3.Connection], bool]


class Waiter:
    """A future that a thread resolves on the waiter's event loop."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def wake(self, answer: Any) -> None:
        try:
            self.future.get_loop().call_soon_threadsafe(self.resolve, answer)
        except RuntimeError:
            log.debug("cannot wake a waiter: its event loop is closed")

    def resolve(self, answer: Any) -> None:
        if not self.future.done():
            self.future.set_result(answer)


class ChangeWatcher:
    """The thread runs only while there are waiters or subscribers."""

    def __init__(self, path: Path, clock: Clock, last_write_at: Callable[[], float]) -> None:
        self._path = path
        self._clock = clock
        self._last_write_at = last_write_at
        self._connection = connect(path, "NORMAL", writer=False)
        self._work: dict[Waiter, Check] = {}
        self._subscribers: dict[object, tuple[Check, Callable[[], None]]] = {}
        self._ends: dict[Waiter, str] = {}
        self._unchecked: set[str] = set()  # awaited jobs that have not been queried yet
        self._lock = threading.Lock()
        self._is_needed = threading.Event()
        self._file = FileWatcher(Path(f"{path}-wal"))
        self._ended_checked_at = 0.0
        self._ended_pause = 0.0
        self._closing = False
        self._thread = threading.Thread(target=self._loop, name="jobyard-sqlite-watch", daemon=True)
        self._thread.start()

    async def wait_for_work(self, check: Check, timeout_seconds: float) -> bool:
        waiter = Waiter()
        with self._lock:
            self._work[waiter] = check
        return await self._wait(waiter, timeout_seconds) is not None

    async def wait_for_end(self, job_id: str, timeout_seconds: float) -> Job | None:
        waiter = Waiter()
        with self._lock:
            self._ends[waiter] = job_id
            self._unchecked.add(job_id)
        job: Job | None = await self._wait(waiter, timeout_seconds)
        return job

    @contextmanager
    def subscribed(self, check: Check, callback: Callable[[], None]) -> Iterator[None]:
        """Call `callback` whenever a commit of another process makes the check true.

        The caller has to look for earlier changes itself, after this has begun.
        """
        if self._closing:
            raise store_closed(self._path)
        subscriber = object()
        with self._lock:
            self._subscribers[subscriber] = (check, callback)
        self._is_needed.set()
        try:
            yield
        finally:
            with self._lock:
                del self._subscribers[subscriber]
                self._pause_if_unneeded()

    def _pause_if_unneeded(self) -> None:
        if not (self._work or self._subscribers or self._ends or self._closing):
            self._is_needed.clear()

    async def _wait(self, waiter: Waiter, timeout_seconds: float) -> Any:
        if self._closing:
            raise store_closed(self._path)
        self._file.interrupt()
        self._is_needed.set()
        handle = waiter.future.get_loop().call_later(max(0.0, timeout_seconds), waiter.resolve, None)
        try:
            answer = await waiter.future
        finally:
            handle.cancel()
            with self._lock:
                self._work.pop(waiter, None)
                self._ends.pop(waiter, None)
                self._pause_if_unneeded()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def committed(self, has_work: bool, ended: dict[str, Job | None]) -> None:
        """Wake waiters for a commit of this process; called by its writer."""
        if not (has_work and self._work) and not ended:
            return
        with self._lock:
            for_work = list(self._work) if has_work else []
            for_ends = [(waiter, ended[job_id]) for waiter, job_id in self._ends.items() if job_id in ended]
        for waiter in for_work:
            waiter.wake(True)
        for waiter, job in for_ends:
            if job is not None:
                waiter.wake(job)

    def close(self) -> None:
        with self._lock:
            self._closing = True
            self._is_needed.set()
        self._file.interrupt()
        self._thread.join()
        with self._lock:
            waiters = [*self._work, *self._ends]
        for waiter in waiters:
            waiter.wake(store_closed(self._path))
        self._file.close()
        self._connection.close()

    def _loop(self) -> None:
        version, due, is_interrupted, is_stale = -1, 0, True, False
        while not self._closing:
            try:
                present = self._connection.execute("PRAGMA data_version").fetchone()[0]
                is_changed, version = present != version, present
                if is_interrupted or is_changed or due <= self._clock.now():
                    row = self._connection.execute(SQL["next_delayed"]).fetchone()
                    due = row[0] if row else NEVER
                    self._check_for_work()
                is_stale = self._check_for_ends(is_stale=is_stale or is_changed)
            except sqlite3.Error:
                log.warning("cannot look for changes; trying again", exc_info=True)
                time.sleep(RETRY_SECONDS)
            self._is_needed.wait()
            until_due = (due - self._clock.now()) / 1000
            is_interrupted = self._file.wait(min(until_due, self._ended_pause) if is_stale else until_due)
            if time.monotonic() - self._last_write_at() < OWN_COMMIT_PAUSE_SECONDS:
                time.sleep(OWN_COMMIT_PAUSE_SECONDS)

    def _check_for_work(self) -> None:
        with self._lock:
            waiters, subscribers = list(self._work.items()), list(self._subscribers.values())
        for waiter, check in waiters:
            if check(self._connection):
                waiter.wake(True)
        for check, callback in subscribers:
            if check(self._connection):
                callback()

    def _check_for_ends(self, *, is_stale: bool) -> bool:
        """Query new awaited jobs, and all of them after a change; return True if the latter has to wait."""
        with self._lock:
            unchecked, self._unchecked = self._unchecked, set()
            ids: Iterable[str] = set(self._ends.values())
        if not ids:
            return False
        now, began = time.monotonic(), time.thread_time()
        checks_all = is_stale and now - self._ended_checked_at >= self._ended_pause
        if checks_all:
            self._ended_checked_at, is_stale = now, False
        else:
            ids = unchecked
        found = self._connection.execute(SQL["list_ended"], (json_list(list(ids)),)).fetchall() if ids else []
        for job_id, exists in found:
            answer = load_job(self._connection, job_id) if exists else None
            with self._lock:
                waiters = [waiter for waiter, awaited in self._ends.items() if awaited == job_id]
            for waiter in waiters:
                waiter.wake(answer or JobNotFound.of(job_id))
        if checks_all:
            elapsed = time.thread_time() - began
            self._ended_pause = min(MAX_ENDED_PAUSE_SECONDS, elapsed * ENDED_PAUSE_PER_SECOND)
        return is_stale
