"""Estimate of the store's clock, independent of this machine's wall clock."""

from __future__ import annotations

import time
from collections.abc import Callable

from jobyard.domain.instant import Instant
from jobyard.ports.store import Store

# How far two clocks may drift apart in a second: an old measurement loses precision at this rate.
DRIFT = 0.0005


class StoreClock:
    """Reads the store's clock at intervals and adds the monotonic time since.

    The store reads its clock at some moment between request and response, so a fast response is more precise.
    """

    def __init__(self, store: Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._offset = 0.0  # seconds from the monotonic clock to the store's
        self._error = float("inf")  # how wrong the offset may be, in seconds
        self._measured_at = 0.0

    @property
    def is_known(self) -> bool:
        return self._error != float("inf")

    async def measure(self) -> float:
        """Measure again; returns by how many seconds the estimate changed."""
        sent = self._monotonic()
        response = await self._store.now() / 1000 + 0.0005  # it was rounded down
        received = self._monotonic()
        error = (received - sent) / 2 + 0.0005
        offset = response - (sent + received) / 2
        moved = offset - self._offset
        present_error = self._error + (received - self._measured_at) * DRIFT
        if self.is_known and error > present_error and abs(moved) <= error + present_error:
            return 0.0  # consistent with the estimate, and less precise
        self._offset, self._error, self._measured_at = offset, error, received
        return moved

    def seconds(self) -> float:
        return self._monotonic() + self._offset

    def now(self) -> Instant:
        return int(self.seconds() * 1000)
