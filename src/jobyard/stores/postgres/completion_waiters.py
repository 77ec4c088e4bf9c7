"""Waiting for the end of jobs: told at once of ends made here, asked for together where they happen elsewhere."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from jobyard.domain.job import Job
from jobyard.errors import JobyardError, StoreUnavailable
from jobyard.stores._shared.waiters import Waiters
from jobyard.stores.postgres.standing import not_found

log = logging.getLogger("jobyard.store")

# However many ends are told of, all who wait are asked for together, and not more often than this.
ASK_EVERY_SECONDS = 0.02
# An end that nobody told of, because its teller died or the listener was away.
LOOK_EVERY_SECONDS = 0.5
AFTER_TROUBLE_SECONDS = 0.5


class Ends:
    """Who waits for which job's end, across the threads of this process."""

    def __init__(self) -> None:
        self.bell = Waiters()  # rings when some job may have ended elsewhere
        self._lock = threading.Lock()
        self._sleepers: dict[str, set[asyncio.Future[Job]]] = {}
        self._settling: set[str] = set()

    @property
    def awaited(self) -> dict[str, set[asyncio.Future[Job]]]:
        return self._sleepers

    def enter(self, job_id: str) -> asyncio.Future[Job]:
        sleeper: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._sleepers.setdefault(job_id, set()).add(sleeper)
        return sleeper

    def leave(self, job_id: str, sleeper: asyncio.Future[Job]) -> None:
        with self._lock:
            sleepers = self._sleepers.get(job_id, set())
            sleepers.discard(sleeper)
            if not sleepers:
                self._sleepers.pop(job_id, None)

    def settling(self, ids: Sequence[str]) -> None:
        """An exchange is under way that will show their ends."""
        with self._lock:
            self._settling.update(ids)

    def settled(self, ids: Sequence[str]) -> None:
        with self._lock:
            self._settling.difference_update(ids)

    def ended(self, jobs: Iterable[Job]) -> None:
        """Shown to who waits, though retention may take them away at any time."""
        for job in jobs:
            if job.state.is_final:
                self._tell(job.id, job)

    def gone(self, ids: Iterable[str]) -> None:
        for job_id in ids:
            if job_id not in self._settling:
                self._tell(job_id, not_found(job_id))

    def close(self) -> None:
        for job_id in list(self._sleepers):
            self._tell(job_id, StoreUnavailable("The store was closed."))

    def _tell(self, job_id: str, answer: Job | JobyardError) -> None:
        with self._lock:
            sleepers = list(self._sleepers.get(job_id, ()))
        for sleeper in sleepers:
            try:
                sleeper.get_loop().call_soon_threadsafe(_resolve, sleeper, answer)
            except RuntimeError:
                log.debug("an event loop was closed before it could be woken")


def _resolve(sleeper: asyncio.Future[Job], answer: Any) -> None:
    if sleeper.done():
        return
    if isinstance(answer, Job):
        sleeper.set_result(answer)
    else:
        sleeper.set_exception(answer)


class Asker:
    """Asks the server for all who wait, as long as somebody does; one per handle."""

    def __init__(
        self,
        ends: Ends,
        ask: Callable[[list[str]], Awaitable[tuple[list[Job], list[str]]]],
        is_told: Callable[[], bool],
    ) -> None:
        self._ends = ends
        self._ask = ask
        self._is_told = is_told
        self._new: set[str] = set()
        self._poke = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def wake(self, job_id: str) -> None:
        self._new.add(job_id)
        self._poke.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._watch())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        asked_at, stale, nap = 0.0, False, ASK_EVERY_SECONDS
        while self._ends.awaited:
            rung = self._ends.bell.add()
            try:
                new, self._new = self._new, set()
                self._poke.clear()
                if stale and loop.time() - asked_at >= ASK_EVERY_SECONDS:
                    new, asked_at, stale = set(self._ends.awaited), loop.time(), False
                if new and not await self._look(list(new)):
                    stale = True
                    await asyncio.sleep(AFTER_TROUBLE_SECONDS)
                nap = LOOK_EVERY_SECONDS if self._is_told() else min(LOOK_EVERY_SECONDS, nap * 1.5)
                woken = await self._sleep(rung, ASK_EVERY_SECONDS if stale else nap)
                stale = stale or woken or not self._poke.is_set()
            finally:
                self._ends.bell.discard(rung)

    async def _sleep(self, rung: asyncio.Future[None], seconds: float) -> bool:
        """Whether ends were told of; also over when somebody new comes."""
        poked = asyncio.ensure_future(self._poke.wait())
        either: list[asyncio.Future[Any]] = [rung, poked]
        try:
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            poked.cancel()
        return rung.done()

    async def _look(self, ids: list[str]) -> bool:
        try:
            jobs, gone = await self._ask(ids)
        except JobyardError:
            log.debug("asking for ends failed; trying again", exc_info=True)
            return False
        self._ends.ended(jobs)
        self._ends.gone(gone)
        return True
