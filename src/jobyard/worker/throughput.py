"""How much a worker finishes: in all, and of each queue in the last minute."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping

WINDOW_SECONDS = 60.0
STEP_SECONDS = 5.0
# A beat is small: of more queues than these only the busiest are told.
MOST_QUEUES = 100


class Pace:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.completed = 0
        self._clock = clock
        self._steps: deque[tuple[float, Counter[str]]] = deque()  # each with the time at which it began

    def add(self, completed: int, finished: Mapping[str, int]) -> None:
        """Jobs of these queues ended; so many of them completed."""
        self.completed += completed
        if not finished:
            return
        now = self._clock()
        if not self._steps or now - self._steps[-1][0] >= STEP_SECONDS:
            self._forget(now)
            self._steps.append((now, Counter()))
        self._steps[-1][1].update(finished)

    def per_minute(self) -> dict[str, int]:
        """Asked by the keeper from its own thread: it reads only."""
        since = self._clock() - WINDOW_SECONDS
        found: Counter[str] = Counter()
        for began, finished in tuple(self._steps):
            if began > since:
                found.update(finished.copy())
        return dict(found.most_common(MOST_QUEUES))

    def _forget(self, now: float) -> None:
        while self._steps and self._steps[0][0] <= now - WINDOW_SECONDS:
            self._steps.popleft()
