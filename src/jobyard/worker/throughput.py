"""Throughput of a worker: jobs completed in all, and jobs finished per queue in the last minute."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping

WINDOW_SECONDS = 60.0
STEP_SECONDS = 5.0
# A heartbeat must stay small: of more queues than these only the busiest are included.
MAX_QUEUES = 100


class Throughput:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.completed = 0
        self._clock = clock
        self._steps: deque[tuple[float, Counter[str]]] = deque()  # (start of the step, finished jobs by queue)

    def add(self, completed: int, finished: Mapping[str, int]) -> None:
        """Count the jobs that one batch completed, and those it finished by queue."""
        self.completed += completed
        if not finished:
            return
        now = self._clock()
        if not self._steps or now - self._steps[-1][0] >= STEP_SECONDS:
            while self._steps and self._steps[0][0] <= now - WINDOW_SECONDS:
                self._steps.popleft()
            self._steps.append((now, Counter()))
        self._steps[-1][1].update(finished)

    def per_minute(self) -> dict[str, int]:
        """Finished jobs by queue. Called from the background thread, so it only reads."""
        since = self._clock() - WINDOW_SECONDS
        found: Counter[str] = Counter()
        for began, finished in tuple(self._steps):
            if began > since:
                found.update(finished.copy())
        return dict(found.most_common(MAX_QUEUES))
