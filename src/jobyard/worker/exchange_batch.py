"""Settlements on their way to the store, the claims that travel with them, and what a settled batch means."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jobyard.domain.events import Event, JobSettled, SettlementRefused
from jobyard.domain.job import Ending, State
from jobyard.domain.lease import Lease, LeaseKey
from jobyard.domain.state import Settlement, Transition
from jobyard.operations.chart_writer import ChartTally
from jobyard.worker.throughput import Throughput

COMPLETED = Transition(to=State.COMPLETED)


class PendingSettlement(NamedTuple):
    """A settlement that the store has not acknowledged."""

    lease: Lease
    settlement: Settlement
    started: float
    awaits_commit: bool = False  # when refused, the handler's own transaction has completed the job
    raised: BaseException | None = None


@dataclass(slots=True, eq=False)
class ExchangeBatch:
    """An exchange in flight, until its response has been handled."""

    settlements: list[PendingSettlement]
    wanted: int  # free slots reserved for the response


class LongPollClaim(NamedTuple):
    """A claim that waits inside the store until there is a job."""

    wanted: int  # free slots reserved for the response
    until: asyncio.Future[None]
    task: asyncio.Task[None]


class Outbox:
    """Finished attempts that are not settled yet: pending, or in a batch in flight."""

    def __init__(self) -> None:
        self.pending: list[PendingSettlement] = []
        self.in_flight: list[ExchangeBatch] = []

    def next_batch(self, wanted: int) -> ExchangeBatch:
        batch = ExchangeBatch(self.pending, wanted)
        self.pending = []
        self.in_flight.append(batch)
        return batch

    def put_back(self, settlements: list[PendingSettlement]) -> None:
        self.pending = settlements + self.pending

    def keys(self) -> list[LeaseKey]:
        batches = [self.pending, *(batch.settlements for batch in self.in_flight)]
        return [each.settlement.key for batch in batches for each in batch]

    def reserved_slots(self) -> int:
        return sum(batch.wanted for batch in self.in_flight)


def settlement_events(
    batch: Sequence[PendingSettlement],
    refused: Container[LeaseKey],
    throughput: Throughput,
    tally: ChartTally,
    *,
    each: bool,
) -> list[Event]:
    """The events of a batch that the store has handled, and its share of the throughput and of the charts.

    Jobs that ended well have an event only with `each`.
    """
    now, completed = time.monotonic(), 0
    finished: Counter[str] = Counter()
    events: list[Event] = []
    for lease, settlement, started, awaits_commit, raised in batch:
        transition = settlement.transition
        if refused and settlement.key in refused:
            if not awaits_commit:
                events.append(SettlementRefused(lease, transition.to))
                continue
            transition = COMPLETED
        if transition.to is State.COMPLETED:
            completed += 1
        if transition.to.is_final:
            finished[lease.queue] += 1
        error = transition.error
        tally.ended(lease.queue, now - started, transition.to)
        if error is None and not each:
            continue
        if error is None:
            events.append(JobSettled(lease, transition.to, None, None, now - started))
        else:
            facts = (error.ending, error.message, now - started, error.type)
            # A handler may turn its cancellation into any exception; that is not why the job ended.
            events.append(JobSettled(lease, transition.to, *facts, raised if error.ending is Ending.ERROR else None))
    throughput.add(completed, finished)
    return events
