"""The store's time by elapsed time, so that a step of its clock ends no lease early."""

from __future__ import annotations

import time
from collections.abc import Callable

from jobyard.domain.events import ClockStepped
from jobyard.domain.instant import Instant
from jobyard.ports.observer import Emit

# A smaller difference between two readings is drift, which is followed; leases are renewed too often to suffer from it.
TOLERANCE_SECONDS = 2.0


class SteadyClock:
    """Runs on at the old time after the store's clock was set forwards, until every live lease has been renewed.

    It cannot notice a step shortly before its first reading: after that, live workers have `settle_seconds` to renew.

    `time.monotonic` stands still while the machine is suspended. That is wanted: the time then looks like a step of the
    store's clock, and the workers of this machine, which stood still as well, renew before their leases are judged.
    """

    def __init__(
        self,
        lease_seconds: float,
        emit: Emit,
        elapsed: Callable[[], float] = time.monotonic,
        *,
        settle_seconds: float = 0.0,
    ) -> None:
        # Leases may end later than one lease from now, if the clock was set back: also before this process started.
        self.may_have_long_leases = True
        self._lease_seconds = lease_seconds
        self._emit = emit
        self._elapsed = elapsed
        self._settle_seconds = settle_seconds
        self._began = 0.0
        self._kept: float | None = None  # the store's time minus elapsed time, as leases are judged
        self._seen = 0.0  # the same, as last seen
        self._stepped_at = -lease_seconds

    def now(self) -> Instant | None:
        """None before the first reading."""
        return None if self._kept is None else round((self._elapsed() + self._kept) * 1000)

    def read(self, now: Instant, asked_at: float) -> bool:
        """Compare with the store's present time, asked for at `asked_at`; False when leases cannot be judged now.

        That is when the answer was slow, and at first.
        """
        answered_at = self._elapsed()
        if answered_at - asked_at > TOLERANCE_SECONDS:
            return False
        seen = now / 1000 - answered_at
        step, self._seen = seen - self._seen, seen
        if self._kept is None:
            self._kept, self._began = seen, answered_at
        elif abs(step) > TOLERANCE_SECONDS:
            self._emit(ClockStepped(step))
            self._stepped_at = answered_at
            self.may_have_long_leases |= step < 0
        if seen <= self._kept or answered_at - self._stepped_at >= self._lease_seconds:
            self._kept = seen
        return answered_at - self._began >= self._settle_seconds
