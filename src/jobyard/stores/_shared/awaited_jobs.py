"""Which waits for the end of a job have to be registered in the store, so that retention leaves the job alone."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

# How long a registration outlives its wait, for a caller that is late or was cut off from the store.
MARGIN_SECONDS = 15.0
REFRESH_SECONDS = 1.0


class ShortRetention:
    """Whether any queue may remove a job before its waiter has seen the end (`QueueSettings.removes_soon`).

    Usually none does, so it is asked once a second, not once per wait.
    """

    def __init__(self, ask: Callable[[], Awaitable[bool]]) -> None:
        self._ask = ask
        self._asked_at: float | None = None
        self._is_used = False

    async def is_used(self) -> bool:
        now = time.monotonic()
        if self._asked_at is None or now - self._asked_at >= REFRESH_SECONDS:
            self._is_used = await self._ask()
            self._asked_at = now
        return self._is_used

    def forget(self) -> None:
        """Ask again: the settings of a queue were changed by this process."""
        self._asked_at = None


def registered_until(now: int, timeout_seconds: float) -> int:
    """
    >>> registered_until(1_000, 2.5)
    18500
    """
    return now + round((timeout_seconds + MARGIN_SECONDS) * 1000)
