"""Backoff of a worker or scheduler while the store fails, and the events that report it."""

from __future__ import annotations

import random
import time

from jobyard.domain.events import StoreFailed, StoreRecovered
from jobyard.domain.retry import outage_delay
from jobyard.ports.observer import Emit


class StoreBackoff:
    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._failing_since: float | None = None

    def delay(self, doing: str, error: Exception) -> float:
        """Seconds until the next try: the longer the outage, the longer the delay."""
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        delay = outage_delay(now - self._failing_since, random.random())
        self._emit(StoreFailed(doing, error, delay))
        return delay

    def reset(self) -> None:
        """The store responded."""
        if self._failing_since is not None:
            self._emit(StoreRecovered(self.outage_seconds()))
            self._failing_since = None

    def outage_seconds(self) -> float:
        return 0.0 if self._failing_since is None else time.monotonic() - self._failing_since
