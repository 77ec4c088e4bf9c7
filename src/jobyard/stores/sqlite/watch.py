"""Waking sleepers: at once for changes made here, by `PRAGMA data_version` for those of other processes."""

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
from jobyard.errors import JobNotFound, StoreUnavailable
from jobyard.ports.clock import Clock
from jobyard.stores.sqlite.connection import connect
from jobyard.stores.sqlite.notice import Notice
from jobyard.stores.sqlite.people import get
from jobyard.stores.sqlite.statements import as_list, sql

log = logging.getLogger("jobyard.store")

NEXT_DELAYED, ENDS = sql("next_delayed"), sql("ends")
# Ends made here are told at once; those of other processes are asked for, for all sleepers together. Few are asked for
# after each change; many not too often: asking takes a twentieth of the thread's time, and rests no longer than this.
LONGEST_REST_SECONDS = 0.02
REST_FOR_EACH_SECOND = 20.0
NEVER = 1 << 62
OWN_WRITE_SECONDS = 0.002

Question = Callable[[sqlite3.Connection], bool | None]


class Sleeper:
    """Somebody waiting for an answer."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def wake(self, answer: Any) -> None:
        try:
            self.future.get_loop().call_soon_threadsafe(self.resolve, answer)
        except RuntimeError:
            log.debug("an event loop was closed before it could be woken")

    def resolve(self, answer: Any) -> None:
        if not self.future.done():
            self.future.set_result(answer)


class Watch:
    """A thread that looks only while somebody sleeps."""

    def __init__(self, path: Path, clock: Clock, own_write_at: Callable[[], float]) -> None:
        self._clock = clock
        self._own_write_at = own_write_at
        self._connection = connect(path, "NORMAL", writer=False)
        self._work: dict[Sleeper, Question] = {}
        self._patrons: dict[object, tuple[Question, Callable[[], None]]] = {}
        self._ends: dict[Sleeper, str] = {}
        self._new: set[str] = set()  # jobs whose end nobody has asked for yet
        self._lock = threading.Lock()
        self._somebody = threading.Event()
        self._notice = Notice(Path(f"{path}-wal"))
        self._ends_asked_at = 0.0
        self._ends_rest = 0.0
        self._closing = False
        self._thread = threading.Thread(target=self._loop, name="jobyard-sqlite-watch", daemon=True)
        self._thread.start()

    async def wait_for_work(self, question: Question, seconds: float) -> Any:
        """The first answer that is not None; None after the time."""
        sleeper = Sleeper()
        with self._lock:
            self._work[sleeper] = question
        return await self._sleep(sleeper, seconds)

    @contextmanager
    def calling(self, callback: Callable[[], None], question: Question) -> Iterator[None]:
        """Meanwhile, call whenever a change by another process makes the answer True.

        Changes that are there already are the caller's to find, after this has begun.
        """
        if self._closing:
            raise StoreUnavailable("The store was closed.")
        patron = object()
        with self._lock:
            self._patrons[patron] = (question, callback)
        self._somebody.set()
        try:
            yield
        finally:
            with self._lock:
                del self._patrons[patron]
                self._rest()

    def _rest(self) -> None:
        if not (self._work or self._patrons or self._ends or self._closing):
            self._somebody.clear()

    async def wait_for_end(self, job_id: str, seconds: float) -> Any:
        """The job once it is final, an error if it is gone; None after the time."""
        sleeper = Sleeper()
        with self._lock:
            self._ends[sleeper] = job_id
            self._new.add(job_id)
        return await self._sleep(sleeper, seconds)

    async def _sleep(self, sleeper: Sleeper, seconds: float) -> Any:
        if self._closing:
            raise StoreUnavailable("The store was closed.")
        self._notice.poke()
        self._somebody.set()
        handle = sleeper.future.get_loop().call_later(max(0.0, seconds), sleeper.resolve, None)
        try:
            return await sleeper.future
        finally:
            handle.cancel()
            with self._lock:
                self._work.pop(sleeper, None)
                self._ends.pop(sleeper, None)
                self._rest()

    def committed(self, arrived: bool, ended: dict[str, Job | None]) -> None:
        """Called by this process's writer: those it concerns wake at once."""
        if not (arrived and self._work) and not ended:
            return
        with self._lock:
            workers = list(self._work) if arrived else []
            ends = [(sleeper, ended[job_id]) for sleeper, job_id in self._ends.items() if job_id in ended]
        for worker in workers:
            worker.wake(True)
        for sleeper, job in ends:
            if job is not None:
                sleeper.wake(job)

    def close(self) -> None:
        with self._lock:
            self._closing = True
            self._somebody.set()
        self._notice.poke()
        self._thread.join()
        with self._lock:
            left = [*self._work, *self._ends]
        for sleeper in left:
            sleeper.wake(StoreUnavailable("The store was closed."))
        self._notice.close()
        self._connection.close()

    def _loop(self) -> None:
        version, due, asked, stale = -1, 0, True, False
        while not self._closing:
            try:
                present = self._connection.execute("PRAGMA data_version").fetchone()[0]
                changed, version = present != version, present
                if asked or changed or due <= self._clock.now():
                    row = self._connection.execute(NEXT_DELAYED).fetchone()
                    due = row[0] if row else NEVER
                    self._ask_for_work()
                stale = self._ask_for_ends(stale=stale or changed)
            except sqlite3.Error:
                log.warning("looking for changes failed; trying again", exc_info=True)
                time.sleep(0.5)
            self._somebody.wait()
            until_due = (due - self._clock.now()) / 1000
            asked = self._notice.wait(min(until_due, self._ends_rest) if stale else until_due)
            if time.monotonic() - self._own_write_at() < OWN_WRITE_SECONDS:
                # The writer has told everybody here: looking as well would only take the processor from them.
                time.sleep(OWN_WRITE_SECONDS)

    def _ask_for_work(self) -> None:
        with self._lock:
            sleepers, patrons = list(self._work.items()), list(self._patrons.values())
        for sleeper, question in sleepers:
            if question(self._connection):
                sleeper.wake(True)
        for question, callback in patrons:
            if question(self._connection):
                callback()

    def _ask_for_ends(self, *, stale: bool) -> bool:
        """Ask for those who are new, and for all when something changed; True when the latter must wait a moment."""
        with self._lock:
            new, self._new = self._new, set()
            ids: Iterable[str] = set(self._ends.values())
        if not ids:
            return False
        now, began = time.monotonic(), time.thread_time()
        asks_all = stale and now - self._ends_asked_at >= self._ends_rest
        if asks_all:
            self._ends_asked_at, stale = now, False
        else:
            ids = new
        found = self._connection.execute(ENDS, (as_list(list(ids)),)).fetchall() if ids else []
        for job_id, exists in found:
            answer = get(self._connection, job_id) if exists else None
            gone = JobNotFound.of(job_id)
            with self._lock:
                sleepers = [sleeper for sleeper, awaited in self._ends.items() if awaited == job_id]
            for sleeper in sleepers:
                sleeper.wake(answer or gone)
        if asks_all:
            self._ends_rest = min(LONGEST_REST_SECONDS, (time.thread_time() - began) * REST_FOR_EACH_SECOND)
        return stale
