"""Tells other processes what happens to jobs, by way of the store and only while somebody there listens."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Iterator

import msgspec

from jobyard.domain import events as e
from jobyard.domain.instant import Instant
from jobyard.live_events.event import (
    COLLECTION,
    KEPT_SECONDS,
    LISTENERS,
    NOTICE_SECONDS,
    LiveEvent,
    LiveEventType,
    event_key,
    pack,
)
from jobyard.live_events.translate import live_events_of
from jobyard.ports.store import Store

log = logging.getLogger("jobyard.feed")

LISTEN_EVERY_SECONDS = 1.0
# How far the store's clock is from ours is measured again so often; while somebody listens, with each look.
MEASURE_EVERY_SECONDS = 30.0
# The first hint leaves at once; those that come within this time after it leave together.
PUBLISH_EVERY_SECONDS = 0.025
# Hints that wait to leave: 4,000 a second. More than that nobody follows, and the queue must not wait for them.
MAX_PENDING_EVENTS = 100
# A reader that is told so looks at the store anew, which costs more than a hint.
RESYNC_EVERY_SECONDS = 1.0
STOP_SECONDS = 2.0


class LiveEventPublisher:
    """An observer that passes on what it is told; `tell` is for those who have a hint of their own.

    Nobody listens: one look per second; ten while there is something to tell, which is kept until the look is answered.
    So nothing is missed that happens later than NOTICE_SECONDS after somebody began to listen. The store is away: hints
    are dropped, nobody waits.
    """

    def __init__(self, store: Store, source: str) -> None:
        self._store = store
        self._source = source
        self._waiting: dict[object, LiveEvent] = {}
        self._lock = threading.Lock()
        self._is_heard = False
        self._looked_at = 0.0  # when the last look began that was answered
        self._told_at = 0.0  # when the last hint came that waits
        self._measured_at: float | None = None
        self._dropped = False
        self._resynced_at = 0.0
        self._ahead = 0.0  # the store's clock, in seconds ahead of the monotonic one
        self._last_key: Instant = 0
        self._count = 0
        self._wake = asyncio.Event()
        self._ask = asyncio.Event()
        self._thread = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._is_ending = False

    async def start(self) -> None:
        if not self._tasks:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.get_ident()
            self._is_ending = False
            self._tasks = [self._loop.create_task(self._publish()), self._loop.create_task(self._listen())]

    async def stop(self) -> None:
        """Let what waits leave, then end; safe twice."""
        tasks, self._tasks = self._tasks, []
        if tasks:
            self._is_ending = True
            self._wake.set()
            await asyncio.wait(tasks[:1], timeout=STOP_SECONDS)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            self._is_heard = False
            self._measured_at = None

    # What happened

    @property
    def is_heard(self) -> bool:
        return self._is_heard

    @property
    def wants_each_job(self) -> bool:
        # When nothing more fits, the worker is spared the making of events, too.
        return (self._is_heard or self._is_in_doubt()) and len(self._waiting) < MAX_PENDING_EVENTS

    def _is_in_doubt(self) -> bool:
        """Nobody listened at the last look, and that was too long ago."""
        if self._measured_at is None or self._is_ending:
            return False  # it has not begun, or is about to end
        return time.monotonic() - self._looked_at > NOTICE_SECONDS

    def observe(self, event: e.Event) -> None:
        if self._is_heard or self._is_in_doubt():
            for hint in live_events_of(event, self._now()):
                self.tell(hint)

    def tell(self, hint: LiveEvent) -> None:
        """From any thread; a hint without a time gets the present one."""
        if not self._is_heard and not self._is_in_doubt():
            return
        if not hint.at:
            hint = msgspec.structs.replace(hint, at=self._now())
        with self._lock:
            # Of two progress reports that would leave together the later one says it all.
            key: object = (hint.job_id, hint.attempt) if hint.type is LiveEventType.PROGRESS else object()
            self._waiting.pop(key, None)
            if len(self._waiting) < MAX_PENDING_EVENTS:
                self._waiting[key] = hint
            self._dropped = self._dropped or len(self._waiting) >= MAX_PENDING_EVENTS
            self._told_at = time.monotonic()
            wake = self._wake if self._is_heard else self._ask
        if threading.get_ident() == self._thread:
            wake.set()
        elif self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(wake.set)

    # The two loops

    async def _listen(self) -> None:
        while True:
            with self._without_fail():
                await self.look()
            if self._is_heard and (self._dropped or self._waiting):
                self._wake.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LISTEN_EVERY_SECONDS):
                    await self._ask.wait()

    async def look(self) -> None:
        """Does anybody listen, and what time is it there?"""
        began = time.monotonic()
        is_heard = bool(await self._store.fetch_all(LISTENERS, 1))
        if is_heard or self._measured_at is None or began - self._measured_at >= MEASURE_EVERY_SECONDS:
            asked_at = time.monotonic()
            now = await self._store.now()
            self._ahead = now / 1000 - (asked_at + time.monotonic()) / 2
            self._measured_at = began
        self._ask.clear()
        with self._lock:
            self._looked_at, self._is_heard = began, is_heard
            if self._is_heard:
                return
            if self._told_at > began + NOTICE_SECONDS:
                self._ask.set()  # the look was too slow to speak for what came during it
                return
            self._waiting.clear()
            self._dropped = False

    async def _publish(self) -> None:
        while self._wake.is_set() or not self._is_ending:
            await self._wake.wait()
            with self._without_fail():
                await self.run_once()
            if not self._is_ending:
                await asyncio.sleep(PUBLISH_EVERY_SECONDS)

    async def run_once(self) -> None:
        """What waits leaves as one record."""
        self._wake.clear()
        if not self._is_heard:
            return
        now = self._now()
        batch = self._take(now)
        if batch:
            self._last_key, self._count = max(now, self._last_key), self._count + 1
            key = event_key(self._last_key, self._source, self._count)
            await self._store.put(COLLECTION, key, pack(batch), expire_seconds=KEPT_SECONDS)

    def _take(self, now: Instant) -> tuple[LiveEvent, ...]:
        with self._lock:
            batch = tuple(self._waiting.values())
            self._waiting.clear()
            if self._dropped and time.monotonic() - self._resynced_at >= RESYNC_EVERY_SECONDS:
                self._dropped = False
                self._resynced_at = time.monotonic()
                batch = (*batch, LiveEvent(type=LiveEventType.RESYNC, at=now))
        return batch

    @contextlib.contextmanager
    def _without_fail(self) -> Iterator[None]:
        """Whoever looks on must not be able to stop the work; the worker itself tells of a store that is away."""
        try:
            yield
        except Exception:
            self._dropped = True
            log.debug("the feed failed; what waited is dropped", exc_info=True)

    def _now(self) -> Instant:
        """The store's time, as far as it can be known without asking."""
        return round((time.monotonic() + self._ahead) * 1000)
