"""Shared state of the memory store: one lock, one clock, one job table, one set of waiters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

from jobyard.domain.instant import Instant
from jobyard.ports.clock import Clock
from jobyard.stores._shared.clock import AdjustableClock
from jobyard.stores._shared.process_guard import ProcessGuard
from jobyard.stores._shared.waiters import Waiters
from jobyard.stores.memory.job_table import JobTable


class MemoryConnection:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.jobs = JobTable()
        self.waiters = Waiters()
        self.revision = 0
        self.cancel_requests = 0
        self.awaited: Counter[str] = Counter()  # callers that wait for the end of a job, by its id
        self._lock = RLock()
        self.process = ProcessGuard("memory://")
        if isinstance(clock, AdjustableClock):
            clock.subscribe(self.waiters.wake_all)

    @contextmanager
    def locked(self) -> Iterator[Instant]:
        """Hold the lock; jobs that have become due are in line."""
        self.process.require_same()  # jobs of a child would be lost with it
        with self._lock:
            now = self.clock.now()
            self.jobs.promote(now)
            yield now

    @contextmanager
    def changing(self) -> Iterator[Instant]:
        """Hold the lock; afterwards count a revision and wake all waiters."""
        with self.locked() as now:
            yield now
            self.revision += 1
            self.waiters.wake_all()
