"""Keeps leases alive from a thread of its own, where a blocked event loop cannot stop it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from jobyard.domain.events import Event, EventLoopBlocked, LeasesExpired, StoreFailed
from jobyard.domain.lease import ExpiredLease, LeaseKey, renewal_interval
from jobyard.operations.worker_control import Control, requested_control
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.ports.store import Store

# Held leases are renewed at least this often, so that a cancel reaches a busy worker soon.
RENEW_AT_LEAST_EVERY = 1.0
BEATS_PER_LEASE = 3
PRUNE_EVERY_SECONDS = 5.0
BLOCKED_AFTER_SECONDS = 5.0
LISTEN_EVERY_SECONDS = 1.0


class Crew(Protocol):
    """What the keeper needs of its worker; all of it may be called from the keeper's thread."""

    id: str

    def held(self) -> Collection[LeaseKey]: ...
    def expects_leases(self) -> bool: ...
    def info(self) -> WorkerInfo: ...
    def lost(self, key: LeaseKey) -> None: ...
    def asked_to_stop(self, key: LeaseKey, reason: str) -> None: ...
    def obey(self, control: Control) -> None: ...
    def observe(self, event: Event) -> None: ...


class Keeper:
    """Each round: renew what is held, listen, say that the worker lives, clear away what dead workers left, prune."""

    def __init__(self, crew: Crew, store: Store, lease_seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        self._crew = crew
        self._store = store
        self._lease_seconds = lease_seconds
        self._interval = min(RENEW_AT_LEAST_EVERY, renewal_interval(lease_seconds))
        self._loop = loop
        self._pinged_at: float | None = None  # when the loop was asked to turn and has not yet
        self._loop_turned = True
        self._blocked_reported = False
        self._heard: Control | None = None
        self._next: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._main, name="jobyard-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.to_thread(self._thread.join)

    def _main(self) -> None:
        asyncio.run(self._rounds())

    async def _rounds(self) -> None:
        store = self._store.for_event_loop()
        try:
            if store is not self._store:
                while not self._stop.is_set() and not await self._try("opening the store", store.open):
                    await asyncio.to_thread(self._stop.wait, self._interval)
            while not self._stop.is_set() and not self._loop.is_closed():
                await self.run_once(store)
                await asyncio.to_thread(self._stop.wait, self._interval)
            await self._try("signing off", lambda: store.heartbeat(self._crew.info(), 0))
        finally:
            if store is not self._store:
                await store.close()

    async def run_once(self, store: Store) -> None:
        self._loop_turned = self._pinged_at is None
        self._watch_loop()
        began = time.monotonic()
        await self._try("renewing leases", lambda: self._renew(store))
        if self._is_time("listen", LISTEN_EVERY_SECONDS):
            await self._try("listening for what it is told", lambda: self._listen(store))
        if self._is_time("beat", self._lease_seconds / BEATS_PER_LEASE):
            await self._try("saying that it lives", lambda: store.heartbeat(self._crew.info(), self._lease_seconds))
        if time.monotonic() - began > self._interval:
            # The store was slow, perhaps for everybody: all get a round to renew before anybody's lease is cleared.
            return
        if self._is_time("reclaim", 1.0):
            await self._try("clearing expired leases", lambda: self._reclaim(store))
        if self._is_time("prune", PRUNE_EVERY_SECONDS):
            await self._try("pruning", lambda: self._prune(store))

    async def _renew(self, store: Store) -> None:
        # While the loop stands still, what was claimed as it came cannot be known to the worker either.
        unacknowledged = self._crew.expects_leases() or not self._loop_turned
        held = self._crew.held()
        if not held and not unacknowledged:
            return
        answer = await store.extend(self._crew.id, list(held), self._lease_seconds, unacknowledged=unacknowledged)
        for key in answer.lost:
            self._crew.lost(key)
        for key, reason in answer.cancelled:
            self._crew.asked_to_stop(key, reason)

    async def _listen(self, store: Store) -> None:
        control = await requested_control(store, self._crew.id, self._crew.info().started_at)
        if control is not None and control is not self._heard:
            self._heard = control
            self._crew.obey(control)
            self._next.pop("beat", None)  # so that everybody sees it soon

    async def _reclaim(self, store: Store) -> None:
        by_worker: dict[str, list[ExpiredLease]] = {}
        for ended in await store.reclaim():
            by_worker.setdefault(ended.worker, []).append(ended)
        for worker, leases in by_worker.items():
            self._crew.observe(LeasesExpired(worker, tuple(leases)))

    async def _prune(self, store: Store) -> None:
        while await store.prune(1000) >= 1000 and not self._stop.is_set():
            await self._renew(store)

    async def _try(self, doing: str, verb: Callable[[], Awaitable[None]]) -> bool:
        """A store that is away must not end the thread: the next round tries again."""
        try:
            await verb()
        except Exception as error:
            self._crew.observe(StoreFailed(doing, error, self._interval))
            return False
        return True

    def _is_time(self, what: str, every: float) -> bool:
        now = time.monotonic()
        if now < self._next.get(what, 0.0):
            return False
        self._next[what] = now + every
        return True

    def _watch_loop(self) -> None:
        """Say so when handlers keep the event loop from turning."""
        pinged_at = self._pinged_at
        if pinged_at is None:
            if not self._loop.is_closed():
                self._pinged_at = time.monotonic()
                self._loop.call_soon_threadsafe(self._turned)
            return
        blocked = time.monotonic() - pinged_at
        if blocked > BLOCKED_AFTER_SECONDS and not self._blocked_reported:
            self._blocked_reported = True
            self._crew.observe(EventLoopBlocked(blocked))

    def _turned(self) -> None:
        self._pinged_at = None
        self._blocked_reported = False
