"""The worker's background thread: lease renewal and heartbeats, and beside them reclaiming and pruning.

It has an event loop of its own, so that a handler that blocks the application's loop cannot stop renewals.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial

from jobyard.domain.events import LeasesExpired, StoreFailed
from jobyard.domain.lease import ExpiredLease
from jobyard.ports.observer import Emit
from jobyard.ports.store import Store
from jobyard.worker.end_relay import prune
from jobyard.worker.heartbeat import Heartbeat
from jobyard.worker.lease_renewer import LeaseRenewer
from jobyard.worker.loop_monitor import EventLoopMonitor
from jobyard.worker.retention_cap import RetentionCapMonitor
from jobyard.worker.steady_clock import SteadyClock

COMMAND_EVERY_SECONDS = 1.0
RECLAIM_EVERY_SECONDS = 1.0
PRUNE_EVERY_SECONDS = 5.0
PRUNE_BATCH = 1000
CAP_EVERY_SECONDS = 30.0


class BackgroundThread:
    def __init__(
        self, store: Store, renewer: LeaseRenewer, heartbeat: Heartbeat, monitor: EventLoopMonitor, emit: Emit
    ) -> None:
        self._store = store
        self._renewer = renewer
        self._heartbeat = heartbeat
        self._monitor = monitor
        self._emit = emit
        self._clocks: dict[int, SteadyClock] = {}  # of the store, or of each of its shards
        self._cap = RetentionCapMonitor(emit)
        self._due_at: dict[str, float] = {}
        self._renewing_since: float | None = None
        self._was_slow = False  # the last round of renewals took longer than the interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="jobyard-background", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.to_thread(self._thread.join)

    async def _run(self) -> None:
        # Each with a handle, so connections, of its own: a slow prune must not delay a renewal.
        await asyncio.gather(
            self._repeat(self.renew, "deregistering", self._heartbeat.deregister),
            self._repeat(self.housekeep, "reading the queues", lambda store: self._cap.run_once(store, is_last=True)),
        )

    async def _repeat(
        self, run_once: Callable[[Store], Awaitable[None]], doing_last: str, last: Callable[[Store], Awaitable[None]]
    ) -> None:
        store = self._store.for_event_loop()
        try:
            if store is not self._store:
                while not self._stop.is_set() and not await self._try("opening the store", store.open):
                    await self._sleep()
            while not self._stop.is_set() and not self._monitor.loop.is_closed():
                await run_once(store)
                await self._sleep()
            await self._try(doing_last, lambda: last(store))
        finally:
            if store is not self._store:
                await store.close()

    async def _sleep(self) -> None:
        await asyncio.to_thread(self._stop.wait, self._renewer.interval)

    async def renew(self, store: Store) -> None:
        self._monitor.check()
        self._renewing_since = began = time.monotonic()
        await self._try("renewing leases", lambda: self._renewer.renew(store))
        if self._is_due("command", COMMAND_EVERY_SECONDS):
            await self._try("reading worker commands", lambda: self._heartbeat.apply_command(store))
        if self._is_due("heartbeat", self._heartbeat.interval):
            await self._try("sending a heartbeat", lambda: self._heartbeat.send(store))
        self._was_slow = time.monotonic() - began > self._renewer.interval
        self._renewing_since = None

    async def housekeep(self, store: Store) -> None:
        # After a slow store, perhaps for every worker, all get a round to renew before any lease is reclaimed.
        if not self._is_slow() and self._is_due("reclaim", RECLAIM_EVERY_SECONDS):
            # Each shard by its own clock, and one that is unavailable does not stop the others.
            for number, each in enumerate(store.shards() or (store,)):
                if number not in self._clocks:
                    settle_seconds = 2 * self._renewer.interval
                    self._clocks[number] = SteadyClock(
                        self._renewer.lease_seconds, self._emit, settle_seconds=settle_seconds
                    )
                clock = self._clocks[number]
                await self._try("reclaiming expired leases", partial(self._reclaim, each, clock))
        if self._is_due("prune", PRUNE_EVERY_SECONDS):
            await self._try("pruning", lambda: self._prune(store))
        if self._is_due("cap", CAP_EVERY_SECONDS):
            await self._try("reading the queues", lambda: self._cap.run_once(store))

    def _is_slow(self) -> bool:
        since = self._renewing_since
        return self._was_slow or (since is not None and time.monotonic() - since > self._renewer.interval)

    async def _reclaim(self, store: Store, clock: SteadyClock) -> None:
        asked_at = time.monotonic()
        if not clock.read(await store.now(), asked_at):
            return
        longest_seconds = self._renewer.lease_seconds if clock.may_have_long_leases else None
        by_worker: dict[str, list[ExpiredLease]] = {}
        for lease in await store.reclaim(as_of=clock.now(), longest_seconds=longest_seconds):
            by_worker.setdefault(lease.worker, []).append(lease)
        if longest_seconds is not None:
            clock.may_have_long_leases = False
        for worker, leases in by_worker.items():
            self._emit(LeasesExpired(worker, tuple(leases)))

    async def _prune(self, store: Store) -> None:
        while await prune(store, PRUNE_BATCH) >= PRUNE_BATCH and not self._stop.is_set():
            pass

    async def _try(self, doing: str, verb: Callable[[], Awaitable[None]]) -> bool:
        """A store that fails must not end the thread: the next round tries again."""
        try:
            await verb()
        except Exception as error:
            self._emit(StoreFailed(doing, error, self._renewer.interval))
            return False
        return True

    def _is_due(self, task: str, interval: float) -> bool:
        now = time.monotonic()
        if now < self._due_at.get(task, 0.0):
            return False
        self._due_at[task] = now + interval
        return True
