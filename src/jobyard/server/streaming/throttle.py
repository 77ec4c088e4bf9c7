"""What those who follow everything may be sent when very much happens: a share of what the server can write."""

from __future__ import annotations

import math
from collections.abc import Sequence

# All streams together; each has its share, and what it did not use for a while.
BYTES_PER_SECOND = 4_000_000
LEAST_PER_SECOND = 4_000
LEAST_AT_ONCE = 16_000


class Throttle:
    """Of one audience. A flood is cut, and then sampled: few large pieces cost less than many small ones."""

    def __init__(self, now: float) -> None:
        self.is_cut = False  # something was left out, and the streams have not been told yet
        self._left = math.inf  # as much as is given at once
        self._at = now
        self._waits = False

    def cut(self, texts: Sequence[bytes], streams: int, now: float) -> list[bytes]:
        """As many of them, from the first, as may be sent now to each of its streams."""
        per_second = max(LEAST_PER_SECOND, BYTES_PER_SECOND / max(1, streams))
        at_once = max(LEAST_AT_ONCE, per_second)
        self._left = min(at_once, self._left + (now - self._at) * per_second)
        self._at = now
        if self._waits and self._left < at_once / 2:
            self.is_cut = self.is_cut or bool(texts)
            return []
        self._waits = False
        kept: list[bytes] = []
        for text in texts:
            if len(text) > self._left:
                self._waits = self.is_cut = True
                break
            self._left -= len(text)
            kept.append(text)
        return kept

    def settle(self) -> bool:
        """Whether the flood is over, and the streams are now to be told that something was left out."""
        is_owed = self.is_cut and not self._waits
        if is_owed:
            self.is_cut = False
        return is_owed
