"""Rate limits: requests per second, and requests that stay open."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable

from jobyard.server.problems import HttpError

RATE_LIMIT, RATE_REMAINING, RATE_RESET = b"ratelimit-limit", b"ratelimit-remaining", b"ratelimit-reset"
# The key in the scope of further response headers.
RESPONSE_HEADERS = "jobyard.response_headers"
# Beyond this many callers the least recent ones are forgotten, so that memory stays bounded.
MAX_CALLERS = 10_000


class TokenBuckets:
    """A token bucket per caller: `burst` requests at once, refilled at `per_second`."""

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = max(1.0, burst)
        self._clock = clock
        self._callers: dict[str, tuple[float, float]] = {}  # tokens left and when; least recent caller first
        self._last_left = self._burst  # of the caller that took last

    def take(self, caller: str) -> float:
        """Take a token. Returns 0.0, or the seconds until one is available."""
        now = self._clock()
        left = self._last_left = self._left(caller, now)
        if left < 1.0:
            return (1.0 - left) / self._per_second
        self._last_left -= 1.0
        self._callers.pop(caller, None)  # re-inserted as the most recent
        self._callers[caller] = (left - 1.0, now)
        if len(self._callers) > MAX_CALLERS:
            del self._callers[next(iter(self._callers))]
        return 0.0

    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """The RateLimit headers of the caller that took last: the burst, what is left, and seconds until it is full."""
        reset = math.ceil((self._burst - self._last_left) / self._per_second)
        left = b"%d" % max(0, int(self._last_left))
        return ((RATE_LIMIT, b"%d" % self._burst), (RATE_REMAINING, left), (RATE_RESET, b"%d" % reset))

    def _left(self, caller: str, now: float) -> float:
        known = self._callers.get(caller)
        if known is None:
            return self._burst
        return min(self._burst, known[0] + (now - known[1]) * self._per_second)


# Half of the connections of a server, so that one token cannot lock out the others.
MAX_OPEN = 2000


class OpenRequestLimit:
    """Caps the streams and long polls that each token holds open."""

    def __init__(self, max_open: int = MAX_OPEN) -> None:
        self._max_open = max_open
        self._open: Counter[str] = Counter()

    @property
    def total(self) -> int:
        return self._open.total()

    def acquire(self, caller: str) -> None:
        if self._open[caller] >= self._max_open:
            detail = f"The token already holds {self._max_open:,} streams and long polls open. Close some first."
            raise too_many_requests(1, detail)
        self._open[caller] += 1

    def release(self, caller: str) -> None:
        self._open[caller] -= 1
        if self._open[caller] <= 0:
            del self._open[caller]


def too_many_requests(seconds: float, detail: str) -> HttpError:
    return HttpError(429, "too_many_requests", detail, headers={"Retry-After": str(max(1, math.ceil(seconds)))})
