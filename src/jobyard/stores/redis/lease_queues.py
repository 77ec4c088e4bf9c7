"""The queue of each lease granted to this process, and the slots of exchanges in flight."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

# Leases that are never settled here, such as those of handed-off jobs, must not pile up.
MAX_KNOWN = 100_000


class LeaseQueues:
    """For a lease that is not known here, the server searches its queues."""

    def __init__(self) -> None:
        self._queues: dict[int, str] = {}

    def add(self, sequences: Sequence[int], queues: Sequence[bytes]) -> None:
        for sequence, queue in zip(sequences, queues, strict=True):
            self._queues[sequence] = queue.decode()
        while len(self._queues) > MAX_KNOWN:
            self._queues.pop(next(iter(self._queues)), None)

    def get(self, sequence: int) -> str | bool:
        return self._queues.get(sequence, False)

    def pop(self, sequence: int) -> str | bool:
        return self._queues.pop(sequence, False)


class ExchangeSlots:
    """Small numbers that distinguish the exchanges of one worker in flight: the server keeps one response per slot."""

    def __init__(self) -> None:
        self._taken: dict[str, set[int]] = {}

    def take(self, worker: str) -> int:
        taken = self._taken.setdefault(worker, set())
        slot = next(number for number in itertools.count() if number not in taken)
        taken.add(slot)
        return slot

    def free(self, worker: str, slot: int) -> None:
        taken = self._taken.get(worker, set())
        taken.discard(slot)
        if not taken:
            self._taken.pop(worker, None)
