"""How much one caller may ask for, and how the server below the application is held to its limits."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from jobyard.server.http_protocol import ConnectionLimits, limited
from jobyard.server.problems import HttpError

# Beyond so many callers the ones that were longest silent are forgotten: their buckets are full again anyway.
MAX_CALLERS = 10_000
# Longer than what common proxies and clients keep, so that it is they who close an idle connection.
KEEP_ALIVE_SECONDS = 75


class TokenBuckets:
    """Each caller has `burst` requests at once, and `per_second` new ones."""

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = max(1.0, burst)
        self._clock = clock
        self._callers: dict[str, tuple[float, float]] = {}  # how many are left, and when that was; oldest first

    def take(self, caller: str) -> float:
        """Take one; answers 0, or how many seconds to wait until there is one."""
        now = self._clock()
        left = self._left(caller, now)
        if left < 1.0:
            return self._wait(left)
        self._callers.pop(caller, None)  # whoever asks moves to the end
        self._callers[caller] = (left - 1.0, now)
        if len(self._callers) > MAX_CALLERS:
            del self._callers[next(iter(self._callers))]
        return 0.0

    def _left(self, caller: str, now: float) -> float:
        known = self._callers.get(caller)
        if known is None:
            return self._burst
        return min(self._burst, known[0] + (now - known[1]) * self._per_second)

    def _wait(self, left: float) -> float:
        return (1.0 - left) / self._per_second


# Broadcaster and long polls that one token may hold open: half of what a server holds altogether.
MOST_OPEN = 2000


class OpenRequestLimit:
    """Who holds how many requests open: one token must not keep everybody else out."""

    def __init__(self, most: int = MOST_OPEN) -> None:
        self._most = most
        self._open: Counter[str] = Counter()

    def enter(self, caller: str) -> None:
        if self._open[caller] >= self._most:
            raise too_many(1, f"This token holds {self._most:,} streams and waits open.")
        self._open[caller] += 1

    def leave(self, caller: str) -> None:
        self._open[caller] -= 1
        if self._open[caller] <= 0:
            del self._open[caller]


def too_many(seconds: float, detail: str) -> HttpError:
    return HttpError(429, "too_many_requests", detail, headers={"Retry-After": str(max(1, math.ceil(seconds)))})


def uvicorn_options(limits: ConnectionLimits, *, access_log: bool = False) -> dict[str, Any]:
    """What `uvicorn.Config` is given besides the application and its address.

    The application itself goes in as `SecurityMiddleware(app)`, so that no answer lacks its headers.
    """
    return {
        "http": limited(limits),
        "ws": "none",
        "timeout_keep_alive": KEEP_ALIVE_SECONDS,
        "backlog": 2048,
        "access_log": access_log,
        "server_header": False,
        "log_config": None,
    }
