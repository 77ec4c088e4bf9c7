"""What the measured scripts share: their order, their counting, their answer. Needs nothing but Python."""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import quantiles
from typing import NoReturn

WARM_UP = 20
POLL_SECONDS = 0.002
SHORTEST_PAUSE, LONGEST_PAUSE = 0.004, 0.016  # as long as most need to be idle again


@dataclass(frozen=True)
class Order:
    action: str  # fill, drain, insert, enqueue or latency
    url: str
    jobs: int
    settings: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls) -> Order:
        return cls(**json.loads(sys.argv[1]))

    def setting(self, name: str, default: int) -> int:
        return self.settings.get(name, default)


class Tally:
    """Counts the handlers as they start.

    The time runs from the first of them: a peer is not charged for starting its worker.
    """

    def __init__(self, expected: int, done: Callable[[], None]) -> None:
        self.expected = expected
        self.first = 0.0
        self.seen: list[int] = []
        self._done = done
        self._numbers = itertools.count(1)  # threads may draw from it at once

    def ran(self) -> None:
        number = next(self._numbers)
        if number == 1:
            self.first = time.perf_counter()
        if number == self.expected:
            self._done()

    def stamped(self, sent: int) -> None:
        if sent:
            self.seen.append(time.monotonic_ns() - sent)
        self.ran()

    def rate(self) -> float:
        """To be asked when everything is acknowledged."""
        elapsed = time.perf_counter() - self.first
        ran = next(self._numbers) - 1
        assert ran == self.expected, f"{ran} runs of {self.expected} jobs"
        return self.expected / elapsed

    def latency(self) -> dict[str, float]:
        cuts = quantiles([each / 1e6 for each in self.seen], n=100, method="inclusive")
        return {"p50_ms": cuts[49], "p99_ms": cuts[98]}


def pause() -> float:
    """Random, so that no rhythm of a worker's waiting is hit or missed on purpose."""
    return random.uniform(SHORTEST_PAUSE, LONGEST_PAUSE)


def answer(figures: dict[str, float]) -> NoReturn:
    """Print and be gone: stopping a worker well is not measured, and some peers take seconds for it."""
    print(json.dumps(figures), flush=True)
    os._exit(0)
