"""Detection of handlers that block the event loop."""

from __future__ import annotations

import asyncio
import time

from jobyard.domain.events import EventLoopBlocked
from jobyard.ports.observer import Emit

BLOCKED_AFTER_SECONDS = 5.0


class EventLoopMonitor:
    """Pings the event loop from another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, emit: Emit) -> None:
        self.is_blocked = False  # at the last check, the ping before it was unanswered
        self.loop = loop
        self._emit = emit
        self._pinged_at: float | None = None  # None: the last ping was answered
        self._is_reported = False

    def check(self) -> None:
        pinged_at = self._pinged_at
        self.is_blocked = pinged_at is not None
        if pinged_at is None:
            if not self.loop.is_closed():
                self._pinged_at = time.monotonic()
                self.loop.call_soon_threadsafe(self._answer)
            return
        blocked = time.monotonic() - pinged_at
        if blocked > BLOCKED_AFTER_SECONDS and not self._is_reported:
            self._is_reported = True
            self._emit(EventLoopBlocked(blocked))

    def _answer(self) -> None:
        self._pinged_at = None
        self._is_reported = False
