"""A clock that moves only when a test advances it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from jobyard.domain.instant import Instant

START: Instant = 1_767_225_600_000  # 2026-01-01T00:00:00Z


class ManualClock:
    """
    >>> clock = ManualClock(start=1_000)
    >>> clock.advance(2.5)
    3500
    >>> clock.now()
    3500
    """

    def __init__(self, start: Instant = START) -> None:
        self._now = start
        self._lock = Lock()
        self._callbacks: list[Callable[[], None]] = []

    def now(self) -> Instant:
        with self._lock:
            return self._now

    def advance(self, seconds: float) -> Instant:
        with self._lock:
            self._now += round(seconds * 1000)
            now = self._now
        self._tell()
        return now

    def set(self, instant: Instant) -> None:
        with self._lock:
            self._now = instant
        self._tell()

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back after each change, on the changing thread; returns a function that ends the subscription."""
        with self._lock:
            self._callbacks.append(callback)

        def unsubscribe() -> None:
            with self._lock:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)

        return unsubscribe

    def _tell(self) -> None:
        # Outside the lock: a callback may well look at the clock.
        with self._lock:
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()
