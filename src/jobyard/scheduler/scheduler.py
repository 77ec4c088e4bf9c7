"""The scheduler: waits for the next tick and has the store decide it. Any number of schedulers may run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable

from jobyard.domain.events import SchedulerStarted, SchedulerStopped, TickDecided
from jobyard.domain.instant import Instant
from jobyard.domain.schedule import Verdict
from jobyard.operations.store_backoff import StoreBackoff
from jobyard.ports.observer import Observer
from jobyard.ports.store import Store
from jobyard.scheduler.definitions_watcher import DefinitionsWatcher
from jobyard.scheduler.dispatcher import TickDispatcher
from jobyard.scheduler.store_clock import StoreClock
from jobyard.scheduler.timetable import Timetable

log = logging.getLogger("jobyard.scheduler")

FOLLOW_EVERY_SECONDS = 0.5
MEASURE_EVERY_SECONDS = 2.0
SWEEP_EVERY_SECONDS = 10.0
# The loop runs at least this often, so that health checks can see that it is alive.
ITERATION_SECONDS = 1.0
# A loop without an iteration for this long hangs.
HANGS_SECONDS = 10.0
# Calls in flight get this long to finish when the scheduler stops.
STOP_SECONDS = 1.0
# When the estimate of the store's clock moved by more than this, the sleep until the next tick starts over.
MOVED_SECONDS = 0.01


class Scheduler:
    def __init__(
        self,
        store: Store,
        observer: Observer,
        *,
        name: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name or f"{socket.gethostname()}-{os.getpid()}-{random.getrandbits(24):06x}"
        self.iterated_at = time.monotonic()  # the last iteration of the loop, also while the store fails
        self._store = store
        self._observer = observer
        self._clock = StoreClock(store, monotonic)
        self.timetable = Timetable()
        self.definitions = DefinitionsWatcher(store, self.timetable)
        self._dispatcher = TickDispatcher(store, self.timetable, self._clock.now)
        self._moved = asyncio.Event()  # the time of the next tick may have changed
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._stopping = asyncio.Event()

    @property
    def is_loaded(self) -> bool:
        """Whether all schedules are known and fired."""
        return self.definitions.is_loaded

    @property
    def is_alive(self) -> bool:
        """Whether its loops run, whatever the store does; if not, only a restart helps."""
        return not any(task.done() for task in self._tasks) and time.monotonic() - self.iterated_at < HANGS_SECONDS

    async def start(self) -> None:
        """Start the loops; a store that is unavailable is waited for in the background."""
        if not self._tasks:
            self._tasks = tuple(asyncio.create_task(loop) for loop in (self._follow(), self._tick()))
            for task in self._tasks:
                task.add_done_callback(_log_failure)

    async def ended(self) -> None:
        """Wait until the scheduler has stopped; raises when a loop failed."""
        for task in asyncio.as_completed(self._tasks):
            await task

    async def stop(self) -> None:
        """Stop at once: undecided ticks are decided by other schedulers, or later. Safe twice."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._moved.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
        self._observer.observe(SchedulerStopped(self.name))

    async def run_once(self) -> int:
        """Reload what changed and decide what is due by the store's clock; returns how many ticks were decided."""
        if self.definitions.is_loaded:
            await self.definitions.follow()
        else:
            await self.definitions.load()
        await self._clock.measure()
        now = await self._store.now()
        decided = 0
        while (entries := self.timetable.take_due(now)) or self._dispatcher.is_behind:
            await self._dispatcher.fire(entries, now)
            decided += sum(isinstance(event, TickDecided) for event in self._dispatcher.events)
            await self._reload_stale()
            self._emit()
            now = await self._store.now()
        return decided

    async def _follow(self) -> None:
        backoff = StoreBackoff(self._observer.observe)
        next_measure = next_sweep = 0.0
        while not self._stopping.is_set():
            try:
                if time.monotonic() >= next_measure:
                    next_measure = time.monotonic() + MEASURE_EVERY_SECONDS
                    if abs(await self._clock.measure()) > MOVED_SECONDS:
                        self._moved.set()
                if not self.definitions.is_loaded:
                    await self.definitions.load()
                    self._observer.observe(SchedulerStarted(self.name, len(self.timetable), self._store.url))
                    next_sweep = time.monotonic() + SWEEP_EVERY_SECONDS
                    self._moved.set()
                elif await self.definitions.follow():
                    self._moved.set()
                if time.monotonic() >= next_sweep:
                    next_sweep = time.monotonic() + SWEEP_EVERY_SECONDS
                    await self.definitions.sweep()
                    self._moved.set()
                backoff.reset()
            except Exception as error:
                next_measure = 0.0
                await self._pause(backoff.delay("reading the schedules", error))
            else:
                await self._pause(FOLLOW_EVERY_SECONDS)

    async def _tick(self) -> None:
        backoff = StoreBackoff(self._observer.observe)
        while not self._stopping.is_set():
            self.iterated_at = time.monotonic()
            self._moved.clear()
            now = self._clock.now()
            entries = self.timetable.take_due(now) if self._clock.is_known else []
            if not entries and not self._dispatcher.is_behind:
                await self._sleep_until(self.timetable.next_check())
                continue
            try:
                await self._iterating(self._dispatcher.fire(entries, now))
                await self._iterating(self._reload_stale())
                backoff.reset()
            except Exception as error:
                await self._iterating(self._pause(backoff.delay("deciding what is due", error)))
            finally:
                self._emit()

    async def _sleep_until(self, at: Instant | None) -> None:
        seconds = ITERATION_SECONDS if at is None else min(ITERATION_SECONDS, at / 1000 - self._clock.seconds())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._moved.wait()

    async def _iterating(self, verb: Awaitable[None]) -> None:
        """Wait for the store, and keep `iterated_at` current meanwhile."""
        task = asyncio.ensure_future(verb)
        try:
            while not task.done():
                self.iterated_at = time.monotonic()
                await asyncio.wait({task}, timeout=ITERATION_SECONDS)
        finally:
            task.cancel()
        await task

    async def _pause(self, seconds: float) -> None:
        """Sleep until the scheduler stops, at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _reload_stale(self) -> None:
        """Reload stale definitions; one that cannot be read now is stale again within a second."""
        stale, self._dispatcher.stale = self._dispatcher.stale, set()
        await self.definitions.reload(stale, arm=True)

    def _emit(self) -> None:
        events, self._dispatcher.events = self._dispatcher.events, []
        for event in events:
            is_usual = isinstance(event, TickDecided) and event.verdict is Verdict.FIRED
            if not is_usual or self._observer.wants_each_job:
                self._observer.observe(event)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.critical("a loop of the scheduler failed; it fires no more schedules", exc_info=task.exception())
