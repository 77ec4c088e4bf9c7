"""The store's clock, as it is known here: nobody's wall clock is trusted."""

from __future__ import annotations

import time
from collections.abc import Callable

from jobyard.domain.instant import Instant
from jobyard.ports.store import Store

# How far two clocks may drift apart in a second, so how much an old reading is worth.
DRIFT = 0.0005


class StoreClock:
    """Asks the store now and then; in between, the time since is counted by a clock that nobody can set.

    An answer tells the time at some moment between question and answer, so a quick one is worth more than a slow one.
    """

    def __init__(self, store: Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._offset = 0.0  # seconds from the monotonic clock to the store's
        self._doubt = float("inf")  # how wrong that may be
        self._measured_at = 0.0

    @property
    def is_known(self) -> bool:
        return self._doubt != float("inf")

    async def measure(self) -> float:
        """Look again; answers by how many seconds the known time was changed."""
        asked = self._monotonic()
        answer = await self._store.now() / 1000 + 0.0005  # it was rounded down
        answered = self._monotonic()
        doubt = (answered - asked) / 2 + 0.0005
        offset = answer - (asked + answered) / 2
        moved = offset - self._offset
        grown = self._doubt + (answered - self._measured_at) * DRIFT
        if self.is_known and doubt > grown and abs(moved) <= doubt + grown:
            return 0.0  # it says nothing new, and is worth less than what is known
        self._offset, self._doubt, self._measured_at = offset, doubt, answered
        return moved

    def seconds(self) -> float:
        return self._monotonic() + self._offset

    def now(self) -> Instant:
        return int(self.seconds() * 1000)
