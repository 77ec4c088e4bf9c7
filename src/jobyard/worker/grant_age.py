"""The age of leases that a response grants: a late response may carry expired leases."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from jobyard.domain.instant import Instant


def elapsed_seconds() -> float:
    """Unlike `time.monotonic`, it goes on while the machine is suspended, as leases do."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


class GrantAge:
    """Compares the store's time of each response with this process's time.

    A store that stalls after it granted a lease, or a process that is suspended, delays the response. A claim may also
    wait long for its grant; then earlier responses tell how far the two clocks are apart.
    """

    def __init__(self, now: Callable[[], float] = elapsed_seconds) -> None:
        self.now = now
        self._apart: float | None = None  # this process's time minus the store's, at least

    def seconds(self, granted_at: Instant, asked_at: float) -> float:
        """How old the grant is at most; `asked_at`, by `now`, is when the exchange began."""
        at_least, at_most = asked_at - granted_at / 1000, self.now() - granted_at / 1000
        # Tighter after a quicker request, or after the store's clock was set back; too high once it was set forwards.
        if self._apart is None or not at_least <= self._apart <= at_most:
            self._apart = at_least
        return at_most - self._apart
