"""Publishes live events through the store while another process listens."""

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
from jobyard.live_events import event as live
from jobyard.live_events.translate import live_events_of
from jobyard.ports.store import Store

log = logging.getLogger("jobyard.live_events")

CHECK_LISTENERS_EVERY_SECONDS = 1.0
# The offset of the store's clock is measured this often; while there are listeners, with each check.
MEASURE_EVERY_SECONDS = 30.0
# The first event is published at once; those of this time after it are published together.
PUBLISH_EVERY_SECONDS = 0.025
# 4,000 events a second: no subscriber follows more, and publishing must not delay the work.
MAX_PENDING_EVENTS = 100
# A RESYNC makes each reader read from the store, which costs more than an event.
RESYNC_EVERY_SECONDS = 1.0
STOP_SECONDS = 2.0


class LiveEventPublisher:
    """An observer that publishes what it observes; `publish` takes events from elsewhere.

    Without listeners it checks for them once a second; while events occur, ten times a second, and keeps the events
    until the check is answered. So no event is missed that occurs later than NOTICE_SECONDS after a process began to
    listen. While the store fails, events are dropped and no caller waits.
    """

    def __init__(self, store: Store, source: str) -> None:
        self._store = store
        self._source = source
        self._pending: dict[object, live.LiveEvent] = {}
        self._lock = threading.Lock()
        self._has_listeners = False
        self._checked_at = 0.0  # when the last answered check began
        self._newest_at = 0.0  # when the newest pending event occurred
        self._measured_at: float | None = None
        self._has_dropped = False
        self._resynced_at = 0.0
        self._offset = 0.0  # seconds from the monotonic clock to the store's
        self._last_key: Instant = 0
        self._count = 0
        self._publish_wake = asyncio.Event()
        self._check_wake = asyncio.Event()
        self._thread = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopping = False

    async def start(self) -> None:
        if not self._tasks:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.get_ident()
            self._is_stopping = False
            loops = (self._publish_loop(), self._check_loop())
            self._tasks = [self._loop.create_task(each) for each in loops]

    async def stop(self) -> None:
        """Publish the pending events, then end; safe twice."""
        tasks, self._tasks = self._tasks, []
        if tasks:
            self._is_stopping = True
            self._publish_wake.set()
            await asyncio.wait(tasks[:1], timeout=STOP_SECONDS)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            self._has_listeners = False
            self._measured_at = None

    @property
    def has_listeners(self) -> bool:
        return self._has_listeners

    @property
    def wants_each_job(self) -> bool:
        # With no room for more events, the worker is also spared making them.
        return (self._has_listeners or self._is_unsure()) and len(self._pending) < MAX_PENDING_EVENTS

    def _is_unsure(self) -> bool:
        """Whether the last check found no listener but is too old to rely on."""
        if self._measured_at is None or self._is_stopping:
            return False
        return time.monotonic() - self._checked_at > live.NOTICE_SECONDS

    def observe(self, event: e.Event) -> None:
        if self._has_listeners or self._is_unsure():
            for live_event in live_events_of(event, self._now()):
                self.publish(live_event)

    def publish(self, event: live.LiveEvent) -> None:
        """Publish soon; may be called from any thread. An event without a time gets the present one."""
        if not self._has_listeners and not self._is_unsure():
            return
        if not event.at:
            event = msgspec.structs.replace(event, at=self._now())
        with self._lock:
            # A later progress report replaces a pending one of the same attempt.
            key: object = (event.job_id, event.attempt) if event.type is live.LiveEventType.PROGRESS else object()
            self._pending.pop(key, None)
            if len(self._pending) < MAX_PENDING_EVENTS:
                self._pending[key] = event
            self._has_dropped = self._has_dropped or len(self._pending) >= MAX_PENDING_EVENTS
            self._newest_at = time.monotonic()
            wake = self._publish_wake if self._has_listeners else self._check_wake
        if threading.get_ident() == self._thread:
            wake.set()
        elif self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(wake.set)

    async def _check_loop(self) -> None:
        while True:
            with self._ignoring_errors():
                await self.check_listeners()
            if self._has_listeners and (self._has_dropped or self._pending):
                self._publish_wake.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_LISTENERS_EVERY_SECONDS):
                    await self._check_wake.wait()

    async def check_listeners(self) -> None:
        """Find out whether a process listens, and the store's time."""
        began = time.monotonic()
        has_listeners = bool(await self._store.fetch_all(live.LISTENERS, 1))
        if has_listeners or self._measured_at is None or began - self._measured_at >= MEASURE_EVERY_SECONDS:
            asked_at = time.monotonic()
            now = await self._store.now()
            self._offset = now / 1000 - (asked_at + time.monotonic()) / 2
            self._measured_at = began
        self._check_wake.clear()
        with self._lock:
            self._checked_at, self._has_listeners = began, has_listeners
            if self._has_listeners:
                return
            if self._newest_at > began + live.NOTICE_SECONDS:
                self._check_wake.set()  # the check was too slow to answer for events that occurred during it
                return
            self._pending.clear()
            self._has_dropped = False

    async def _publish_loop(self) -> None:
        while self._publish_wake.is_set() or not self._is_stopping:
            await self._publish_wake.wait()
            with self._ignoring_errors():
                await self.run_once()
            if not self._is_stopping:
                await asyncio.sleep(PUBLISH_EVERY_SECONDS)

    async def run_once(self) -> None:
        """Write the pending events as one record."""
        self._publish_wake.clear()
        if not self._has_listeners:
            return
        now = self._now()
        batch = self._take(now)
        if batch:
            self._last_key, self._count = max(now, self._last_key), self._count + 1
            key = live.event_key(self._last_key, self._source, self._count)
            await self._store.put(live.COLLECTION, key, live.pack(batch), expire_seconds=live.KEPT_SECONDS)

    def _take(self, now: Instant) -> tuple[live.LiveEvent, ...]:
        with self._lock:
            batch = tuple(self._pending.values())
            self._pending.clear()
            if self._has_dropped and time.monotonic() - self._resynced_at >= RESYNC_EVERY_SECONDS:
                self._has_dropped = False
                self._resynced_at = time.monotonic()
                batch = (*batch, live.LiveEvent(type=live.LiveEventType.RESYNC, at=now))
        return batch

    @contextlib.contextmanager
    def _ignoring_errors(self) -> Iterator[None]:
        """Publishing must not stop the work; the worker itself reports a store that fails."""
        try:
            yield
        except Exception:
            self._has_dropped = True
            log.debug("publishing live events failed; the pending ones are dropped", exc_info=True)

    def _now(self) -> Instant:
        """The store's time, estimated without a call."""
        return round((time.monotonic() + self._offset) * 1000)
