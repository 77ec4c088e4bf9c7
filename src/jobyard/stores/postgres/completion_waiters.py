"""Waiting for jobs to end: resolved directly by settlements of this process, polled in batches for those of others."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from jobyard.domain.job import Job
from jobyard.errors import JobNotFound, JobyardError, StoreUnavailable
from jobyard.stores._shared.waiters import Waiters

log = logging.getLogger("jobyard.store")

# Minimum interval between two polls, each of which asks for all awaited jobs: a burst of ends costs one poll.
MIN_POLL_SECONDS = 0.02
# Poll interval without a notification: one may be lost when its sender dies or the listener reconnects.
MAX_POLL_SECONDS = 0.5
ERROR_BACKOFF_SECONDS = 0.5


class CompletionWaiters:
    """Futures of callers that wait for a job to end, across the threads of this process."""

    def __init__(self) -> None:
        self.changed = Waiters()  # woken when a job may have ended in another process
        self._lock = threading.Lock()
        self.awaited: dict[str, set[asyncio.Future[Job]]] = {}
        self._settling: set[str] = set()

    def add(self, job_id: str) -> asyncio.Future[Job]:
        future: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        with self._lock:
            self.awaited.setdefault(job_id, set()).add(future)
        return future

    def discard(self, job_id: str, future: asyncio.Future[Job]) -> None:
        with self._lock:
            futures = self.awaited.get(job_id, set())
            futures.discard(future)
            if not futures:
                self.awaited.pop(job_id, None)

    def begin_settling(self, ids: Sequence[str]) -> None:
        """An exchange in flight will report how these jobs ended, even if retention removes them at once."""
        with self._lock:
            self._settling.update(ids)

    def end_settling(self, ids: Sequence[str]) -> None:
        with self._lock:
            self._settling.difference_update(ids)

    def resolve(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            if job.state.is_final:
                self._resolve(job.id, job)

    def reject_missing(self, ids: Iterable[str]) -> None:
        for job_id in ids:
            if job_id not in self._settling:
                self._resolve(job_id, JobNotFound.of(job_id))

    def close(self) -> None:
        for job_id in list(self.awaited):
            self._resolve(job_id, StoreUnavailable("The store was closed."))

    def _resolve(self, job_id: str, answer: Job | JobyardError) -> None:
        with self._lock:
            futures = list(self.awaited.get(job_id, ()))
        for future in futures:
            try:
                future.get_loop().call_soon_threadsafe(_set, future, answer)
            except RuntimeError:
                log.debug("the event loop of a waiter is closed")


def _set(future: asyncio.Future[Job], answer: Any) -> None:
    if future.done():
        return
    if isinstance(answer, Job):
        future.set_result(answer)
    else:
        future.set_exception(answer)


class CompletionPoller:
    """Polls the server for all awaited jobs, as long as there are any. One per handle."""

    def __init__(
        self,
        waiters: CompletionWaiters,
        poll: Callable[[list[str]], Awaitable[tuple[list[Job], list[str]]]],
        is_listening: Callable[[], bool],
    ) -> None:
        self._waiters = waiters
        self._poll = poll
        self._is_listening = is_listening
        self._new: set[str] = set()
        self._has_new = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def watch(self, job_id: str) -> None:
        self._new.add(job_id)
        self._has_new.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        polled_at, stale, interval = 0.0, False, MIN_POLL_SECONDS
        while self._waiters.awaited:
            changed = self._waiters.changed.add()
            try:
                ids, self._new = self._new, set()
                self._has_new.clear()
                if stale and loop.time() - polled_at >= MIN_POLL_SECONDS:
                    ids, polled_at, stale = set(self._waiters.awaited), loop.time(), False
                if ids and not await self._try_to_poll(list(ids)):
                    stale = True
                    await asyncio.sleep(ERROR_BACKOFF_SECONDS)
                interval = MAX_POLL_SECONDS if self._is_listening() else min(MAX_POLL_SECONDS, interval * 1.5)
                notified = await self._sleep(changed, MIN_POLL_SECONDS if stale else interval)
                stale = stale or notified or not self._has_new.is_set()
            finally:
                self._waiters.changed.discard(changed)

    async def _sleep(self, changed: asyncio.Future[None], seconds: float) -> bool:
        """Return early for a change or a new waiter; return whether there was a change."""
        has_new = asyncio.ensure_future(self._has_new.wait())
        either: list[asyncio.Future[Any]] = [changed, has_new]
        try:
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            has_new.cancel()
        return changed.done()

    async def _try_to_poll(self, ids: list[str]) -> bool:
        try:
            jobs, missing = await self._poll(ids)
        except JobyardError:
            log.debug("cannot poll for ended jobs; retrying", exc_info=True)
            return False
        self._waiters.resolve(jobs)
        self._waiters.reject_missing(missing)
        return True
