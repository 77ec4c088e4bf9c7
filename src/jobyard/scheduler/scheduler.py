"""The loop: sleeps until the next instant, and has the store decide it. Any number of these may run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable

from jobyard.domain.events import SchedulerStarted, SchedulerStopped, StoreFailed, StoreRecovered, TickDecided
from jobyard.domain.instant import Instant
from jobyard.domain.schedule import Verdict
from jobyard.ports.observer import Observer
from jobyard.ports.store import Store
from jobyard.scheduler.clock import StoreClock
from jobyard.scheduler.firing import Firing
from jobyard.scheduler.following import Following
from jobyard.scheduler.timetable import Timetable

log = logging.getLogger("jobyard.scheduler")

FOLLOW_EVERY_SECONDS = 0.5
MEASURE_EVERY_SECONDS = 2.0
SWEEP_EVERY_SECONDS = 10.0
# The loop turns at least this often, so that somebody may see that it does.
TURN_SECONDS = 1.0
# A loop that has not turned for so long will not turn again.
HANGS_SECONDS = 10.0
# What is on its way to the store may still arrive when the scheduler is told to end.
LAST_SECONDS = 1.0
RETRY_FIRST_SECONDS = 0.05
RETRY_MOST_SECONDS = 5.0
# The known time changed by so much: sleeping until an instant has to begin anew.
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
        self.turned_at = time.monotonic()  # when the loop last turned; it does so also while the store is away
        self._store = store
        self._observer = observer
        self._clock = StoreClock(store, monotonic)
        self._timetable = Timetable()
        self._following = Following(store, self._timetable)
        self._firing = Firing(store, self._timetable, self._clock.now)
        self._moved = asyncio.Event()  # something is due at another time than was known
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._ending = asyncio.Event()

    @property
    def is_loaded(self) -> bool:
        """It knows all schedules, and fires them."""
        return self._following.is_loaded

    @property
    def is_turning(self) -> bool:
        """Its loops go on, whatever the store does; False means that only a new process helps."""
        return not any(task.done() for task in self._tasks) and time.monotonic() - self.turned_at < HANGS_SECONDS

    # Life

    async def start(self) -> None:
        """Begins; a store that is away is waited for in the background."""
        if not self._tasks:
            self._tasks = tuple(asyncio.create_task(loop) for loop in (self._follow(), self._tick()))
            for task in self._tasks:
                task.add_done_callback(_tell_of_a_fault)

    async def ended(self) -> None:
        """Returns when it was stopped; raises when a loop ended by a fault."""
        for task in asyncio.as_completed(self._tasks):
            await task

    async def stop(self) -> None:
        """At once: what is not decided is decided by others, or later. Safe twice."""
        if self._ending.is_set():
            return
        self._ending.set()
        self._moved.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_SECONDS)
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
        self._observer.observe(SchedulerStopped(self.name))

    async def run_once(self) -> int:
        """Take over what was changed and decide what is due by the store's clock; answers how many ticks were made."""
        if self._following.is_loaded:
            await self._following.follow()
        else:
            await self._following.load()
        await self._clock.measure()
        now = await self._store.now()
        made = 0
        while (entries := self._timetable.take_due(now)) or self._firing.is_behind:
            await self._firing.fire(entries, now)
            made += sum(isinstance(event, TickDecided) for event in self._firing.events)
            await self._reload_stale()
            self._tell()
            now = await self._store.now()
        return made

    # Loops

    async def _follow(self) -> None:
        trouble = _Trouble(self._observer)
        next_measure = next_sweep = 0.0
        while not self._ending.is_set():
            try:
                if time.monotonic() >= next_measure:
                    next_measure = time.monotonic() + MEASURE_EVERY_SECONDS
                    if abs(await self._clock.measure()) > MOVED_SECONDS:
                        self._moved.set()
                if not self._following.is_loaded:
                    await self._following.load()
                    self._observer.observe(SchedulerStarted(self.name, len(self._timetable)))
                    next_sweep = time.monotonic() + SWEEP_EVERY_SECONDS
                    self._moved.set()
                elif await self._following.follow():
                    self._moved.set()
                if time.monotonic() >= next_sweep:
                    next_sweep = time.monotonic() + SWEEP_EVERY_SECONDS
                    await self._following.sweep()
                    self._moved.set()
                trouble.is_over()
            except Exception as error:
                next_measure = 0.0
                await self._pause(trouble.nap("reading the schedules", error))
            else:
                await self._pause(FOLLOW_EVERY_SECONDS)

    async def _tick(self) -> None:
        trouble = _Trouble(self._observer)
        while not self._ending.is_set():
            self.turned_at = time.monotonic()
            self._moved.clear()
            now = self._clock.now()
            entries = self._timetable.take_due(now) if self._clock.is_known else []
            if not entries and not self._firing.is_behind:
                await self._sleep_until(self._timetable.next_look())
                continue
            try:
                await self._turning(self._firing.fire(entries, now))
                await self._turning(self._reload_stale())
                trouble.is_over()
            except Exception as error:
                await self._turning(self._pause(trouble.nap("deciding what is due", error)))
            finally:
                self._tell()

    async def _sleep_until(self, at: Instant | None) -> None:
        seconds = TURN_SECONDS if at is None else min(TURN_SECONDS, at / 1000 - self._clock.seconds())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._moved.wait(), max(0.0, seconds))

    async def _turning(self, verb: Awaitable[None]) -> None:
        """Wait for the store, and be seen to do so."""
        task = asyncio.ensure_future(verb)
        try:
            while not task.done():
                self.turned_at = time.monotonic()
                await asyncio.wait({task}, timeout=TURN_SECONDS)
        finally:
            task.cancel()
        await task

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not longer than the scheduler lives."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ending.wait(), seconds)

    # What came of it

    async def _reload_stale(self) -> None:
        """One that cannot be looked at now comes back as stale within a second."""
        stale, self._firing.stale = self._firing.stale, set()
        await self._following.reload(stale, arm=True)

    def _tell(self) -> None:
        events, self._firing.events = self._firing.events, []
        for event in events:
            is_usual = isinstance(event, TickDecided) and event.verdict is Verdict.FIRED
            if not is_usual or self._observer.wants_each_job:
                self._observer.observe(event)


class _Trouble:
    """Back off with jitter, the longer the store is away."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._since: float | None = None

    def nap(self, doing: str, error: Exception) -> float:
        now = time.monotonic()
        self._since = self._since or now
        nap = min(RETRY_MOST_SECONDS, max(RETRY_FIRST_SECONDS, (now - self._since) / 2)) * (0.5 + random.random() / 2)
        self._observer.observe(StoreFailed(doing, error, nap))
        return nap

    def is_over(self) -> None:
        if self._since is not None:
            self._observer.observe(StoreRecovered(time.monotonic() - self._since))
            self._since = None


def _tell_of_a_fault(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.critical("a loop of the scheduler ended by a fault; it fires no more", exc_info=task.exception())
