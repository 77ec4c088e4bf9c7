"""What travels between a worker and its store, and what its arrival means."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Container, Sequence
from typing import NamedTuple

from jobyard.domain.events import Event, JobSettled, SettlementRefused
from jobyard.domain.job import State
from jobyard.domain.lease import Lease, LeaseKey
from jobyard.domain.state import Settlement, Transition
from jobyard.ports.store import Store
from jobyard.worker.throughput import Pace

COMPLETED = Transition(to=State.COMPLETED)
LARGE_TRIP = 50


class Parcel(NamedTuple):
    """A settlement waiting for its trip."""

    lease: Lease
    settlement: Settlement
    started: float
    is_promised: bool = False  # refused means that its own transaction completed it


class Trip:
    """An exchange that is under way, until its answer is taken."""

    __slots__ = ("batch", "wanted")

    def __init__(self, batch: list[Parcel], wanted: int) -> None:
        self.batch = batch
        self.wanted = wanted  # free slots that are kept for its answer


class Order(NamedTuple):
    """A claim left with the store: whatever comes is claimed as it comes."""

    wanted: int  # free slots that are kept for its answer
    until: asyncio.Future[None]
    task: asyncio.Task[None]


def overlap(store: Store, concurrency: int, most: int) -> tuple[bool, int]:
    """Whether two trips may be under way, and how much the second must carry: smaller ones would only cost more trips.

    It pays where the store is another process: that works on one trip while the jobs of the other run.
    """
    large = min(most, max(LARGE_TRIP, concurrency // 2))
    return store.is_remote and concurrency >= 2 * LARGE_TRIP, large


def news(batch: Sequence[Parcel], refused: Container[LeaseKey], pace: Pace, *, each: bool) -> list[Event]:
    """What onlookers should hear of a batch that arrived; of each job only if they want it. The pace counts all."""
    now, completed = time.monotonic(), 0
    finished: Counter[str] = Counter()
    events: list[Event] = []
    for lease, settlement, started, is_promised in batch:
        transition = settlement.transition
        if refused and settlement.key in refused:
            if not is_promised:
                events.append(SettlementRefused(lease, transition.to))
                continue
            transition = COMPLETED
        if transition.to is State.COMPLETED:
            completed += 1
        if transition.to.is_final:
            finished[lease.queue] += 1
        error = transition.error
        if error is None and not each:
            continue
        ending, message = (None, None) if error is None else (error.ending, error.message)
        events.append(JobSettled(lease, transition.to, ending, message, now - started))
    pace.add(completed, finished)
    return events
