"""Claims that wait in this process: an insert made here takes one along, in the same transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from jobyard.domain.job import NewJob
from jobyard.ports.job_store import Exchange

# With more jobs than this the insert itself is what takes the time.
FEW_JOBS = 50


class Order:
    """A worker that found nothing; whoever takes the order must give it an answer."""

    def __init__(self, worker: str, queues: Sequence[str], wanted: int, lease_seconds: float) -> None:
        self.worker = worker
        self.queues = tuple(queues)
        self.wanted = wanted
        self.lease_seconds = lease_seconds
        self.is_taken = False
        # None: nothing came of it, ask for yourself.
        self.answer: asyncio.Future[Exchange | None] = asyncio.get_running_loop().create_future()

    def call_off(self, _: object = None) -> None:
        """Nobody waits any longer; but a claim that is on its way is waited for, whatever else happened."""
        if not self.is_taken:
            self.give(None)

    def give(self, answer: Exchange | None) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


class Orders:
    def __init__(self) -> None:
        self._waiting: list[Order] = []

    def add(self, order: Order) -> None:
        self._waiting.append(order)

    def remove(self, order: Order) -> None:
        if order in self._waiting:
            self._waiting.remove(order)

    def take(self, jobs: Sequence[NewJob]) -> Order | None:
        """The first that could use these jobs; only plain ones, which nobody else can hold up."""
        if not self._waiting or len(jobs) > FEW_JOBS:
            return None
        if any(job.unique is not None or job.run_at is not None or job.delay_seconds > 0 for job in jobs):
            return None
        for order in self._waiting:
            if order.answer.done():
                # Called off a moment ago: whoever left it has yet to wake up, and would never see an answer.
                continue
            if not order.queues or all(job.queue in order.queues for job in jobs):
                self._waiting.remove(order)
                order.is_taken = True
                return order
        return None
