"""How much one caller may ask for: a bucket of requests that fills again with time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from jobyard.doors.http.problems import HttpError

# Beyond so many callers the ones that were longest silent are forgotten: their buckets are full again anyway.
MAX_CALLERS = 10_000


class Buckets:
    """Each caller has `burst` requests at once, and `per_second` new ones."""

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = max(1.0, burst)
        self._clock = clock
        self._callers: dict[str, tuple[float, float]] = {}  # how many are left, and when that was; oldest first

    def take(self, caller: str) -> float:
        """Take one; answers 0, or how many seconds to wait until there is one."""
        left = self._left(caller)
        if left < 1.0:
            return self._wait(left)
        self._callers[caller] = (left - 1.0, self._clock())
        if len(self._callers) > MAX_CALLERS:
            del self._callers[next(iter(self._callers))]
        return 0.0

    def wait(self, caller: str) -> float:
        """How long until one could be taken; takes none."""
        left = self._left(caller, keep=True)
        return 0.0 if left >= 1.0 else self._wait(left)

    def _left(self, caller: str, *, keep: bool = False) -> float:
        known = self._callers.get(caller) if keep else self._callers.pop(caller, None)
        if known is None:
            return self._burst
        left, at = known
        now_left = min(self._burst, left + (self._clock() - at) * self._per_second)
        if not keep and now_left < 1.0:
            self._callers[caller] = (left, at)
        return now_left

    def _wait(self, left: float) -> float:
        return (1.0 - left) / self._per_second if self._per_second > 0 else 3600.0


def too_many(seconds: float, detail: str) -> HttpError:
    return HttpError(429, "too_many_requests", detail, headers={"Retry-After": str(max(1, math.ceil(seconds)))})
