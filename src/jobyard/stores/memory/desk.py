"""What all verbs of the memory store stand on: one lock, one clock, one shelf, one bell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

from jobyard.domain.instant import Instant
from jobyard.errors import JobNotFound
from jobyard.ports.clock import Clock
from jobyard.stores._shared.clock import AdjustableClock
from jobyard.stores._shared.waiters import Waiters
from jobyard.stores.memory.entry import Entry
from jobyard.stores.memory.shelf import Shelf


class Desk:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = RLock()
        self._shelf = Shelf()
        self._bell = Waiters()
        self._revision = 0
        self._cancels_asked = 0
        if isinstance(clock, AdjustableClock):
            clock.subscribe(self._bell.wake_all)

    @contextmanager
    def _looking(self) -> Iterator[Instant]:
        """A snapshot: nobody else changes anything meanwhile, and those whose time has come stand in line."""
        with self._lock:
            now = self._clock.now()
            self._shelf.promote(now)
            yield now

    @contextmanager
    def _changing(self) -> Iterator[Instant]:
        """A change: nobody sees half of it, and everybody who waits is woken after it."""
        with self._looking() as now:
            yield now
            self._revision += 1
            self._bell.wake_all()

    def _require(self, job_id: str) -> Entry:
        entry = self._shelf.get(job_id)
        if entry is None:
            raise JobNotFound.of(job_id)
        return entry
