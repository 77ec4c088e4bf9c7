"""Byte-rate limit for streams of all jobs: each gets a share of what the server can write."""

from __future__ import annotations

import math
from collections.abc import Sequence

# For all streams together, divided equally. Without it, a burst of events with many streams blocks the event loop.
BYTES_PER_SECOND = 4_000_000
# Lower bounds of one stream: enough for a few events per second, and for one large event.
MIN_BYTES_PER_SECOND = 4_000
MIN_BURST_BYTES = 16_000


class Throttle:
    """The limit of one subscription. A flood is sampled in large pieces, which cost less than many small ones."""

    def __init__(self, now: float) -> None:
        self.has_dropped = False  # events were dropped, and the subscribers do not know yet
        self._left = math.inf  # starts with a full burst
        self._at = now
        self._is_waiting = False

    def take(self, texts: Sequence[bytes], streams: int, now: float) -> list[bytes]:
        """The first texts that may be sent now to each stream; the rest is dropped."""
        per_second = max(MIN_BYTES_PER_SECOND, BYTES_PER_SECOND / max(1, streams))
        burst = max(MIN_BURST_BYTES, per_second)
        self._left = min(burst, self._left + (now - self._at) * per_second)
        self._at = now
        if self._is_waiting and self._left < burst / 2:
            self.has_dropped = self.has_dropped or bool(texts)
            return []
        self._is_waiting = False
        kept: list[bytes] = []
        for text in texts:
            if len(text) > self._left:
                self._is_waiting = self.has_dropped = True
                break
            self._left -= len(text)
            kept.append(text)
        return kept

    def take_resync(self) -> bool:
        """Whether the flood is over and subscribers must reload what was dropped; true once."""
        is_due = self.has_dropped and not self._is_waiting
        if is_due:
            self.has_dropped = False
        return is_due
