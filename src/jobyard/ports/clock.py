"""The clock port: the machine's clock, or one that a test controls."""

from __future__ import annotations

import time
from typing import Protocol

from jobyard.domain.instant import Instant


class Clock(Protocol):
    def now(self) -> Instant:
        """Milliseconds since 1970 UTC."""


class SystemClock:
    def now(self) -> Instant:
        return time.time_ns() // 1_000_000
