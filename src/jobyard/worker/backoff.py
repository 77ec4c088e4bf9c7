"""What goes wrong outside of jobs: a store that is away, how long to wait for it, and faults of our own."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable

from jobyard.domain.events import Event, StoreFailed, StoreRecovered

log = logging.getLogger("jobyard.worker")

RETRY_FIRST_SECONDS = 0.05
RETRY_MOST_SECONDS = 5.0


class Trouble:
    def __init__(self, observe: Callable[[Event], None]) -> None:
        self._observe = observe
        self._since: float | None = None

    async def nap(self, doing: str, error: Exception) -> None:
        """Back off with jitter, the longer the store is away."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        away = now - self._since
        nap = min(RETRY_MOST_SECONDS, max(RETRY_FIRST_SECONDS, away / 2)) * (0.5 + random.random() / 2)
        self._observe(StoreFailed(doing, error, nap))
        await asyncio.sleep(nap)

    def is_over(self, now: float) -> None:
        if self._since is not None:
            self._observe(StoreRecovered(now - self._since))
            self._since = None

    def seconds(self) -> float:
        return 0.0 if self._since is None else time.monotonic() - self._since


def tell_of_a_fault(main: asyncio.Task[None]) -> None:
    """The claim loop ends when the worker stops, and never otherwise."""
    if not main.cancelled() and main.exception() is not None:
        log.critical("the claim loop ended by a fault; this worker takes no more jobs", exc_info=main.exception())
