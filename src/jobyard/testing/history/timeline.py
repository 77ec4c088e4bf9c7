"""Timeline: exchanges ordered by revision, and all other calls between the exchanges that enclose them.

An exchange has a position for its settlements and one more for each lease it granted. A call without a revision is
known only by its interval: before the position `earliest` it had no effect yet, from `latest` on it had.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate

from jobyard.domain.instant import FOREVER, Instant, after
from jobyard.testing.history.events import ExchangeReturned, RecordedExchange, RecordedSettlement
from jobyard.testing.history.reader import History, RecordedOperation
from jobyard.testing.history.violation import Violation


@dataclass(frozen=True, slots=True)
class AnsweredExchange:
    """An exchange that has a response."""

    request: RecordedExchange
    response: ExchangeReturned
    begin: int
    end: int
    accepted: tuple[RecordedSettlement, ...]
    refused: tuple[RecordedSettlement, ...]


class Timeline:
    def __init__(self, history: History) -> None:
        self.idle: list[AnsweredExchange] = []  # changed nothing, so their position does not matter
        # May have changed something, at an unknown position.
        self.lost: list[tuple[RecordedOperation, RecordedExchange]] = []
        self.exchanges: list[AnsweredExchange] = []
        for operation, request, response in history.select(RecordedExchange, ExchangeReturned):
            if response is None:
                self.lost.append((operation, request))
                continue
            exchange = _answered(operation, request, response)
            (self.exchanges if exchange.accepted or response.leases else self.idle).append(exchange)
        self.exchanges.sort(key=lambda exchange: (exchange.response.revision, exchange.begin))
        self.bases = list(accumulate((1 + len(exchange.response.leases) for exchange in self.exchanges), initial=0))
        self.end = self.bases.pop()  # after the last position
        # Commits are in the order of revisions, so the interval of each exchange also bounds its neighbours.
        self._not_before = list(accumulate((exchange.begin for exchange in self.exchanges), max))
        self._not_after = _lowest_from([exchange.end for exchange in self.exchanges])
        self._now_from = _lowest_from([exchange.response.now for exchange in self.exchanges])
        answered = self.exchanges + self.idle
        by_begin = sorted(answered, key=lambda exchange: exchange.begin)
        self._begins = [exchange.begin for exchange in by_begin]
        self._now_after = _lowest_from([exchange.response.now for exchange in by_begin])
        by_end = sorted(answered, key=lambda exchange: exchange.end)
        self._ends = [exchange.end for exchange in by_end]
        self._now_before = list(accumulate((exchange.response.now for exchange in by_end), max))

    def earliest(self, begin: int) -> int:
        return self._base(bisect_left(self._not_after, begin))

    def latest(self, end: int) -> int:
        return self._base(bisect_right(self._not_before, end))

    def due_from(self, due: Instant) -> int:
        """The position from which on a job with this time was due for every exchange."""
        return self._base(bisect_left(self._now_from, due))

    def now_at_most(self, end: int, delay_seconds: float = 0.0) -> Instant:
        """The latest time, by the store's clock, of a call that ended then, plus a delay."""
        index = bisect_right(self._begins, end)
        return after(self._now_after[index], delay_seconds) if index < len(self._begins) else FOREVER

    def now_at_least(self, begin: int, delay_seconds: float = 0.0) -> Instant:
        index = bisect_left(self._ends, begin)
        return after(self._now_before[index - 1], delay_seconds) if index else 0

    def _base(self, index: int) -> int:
        return self.bases[index] if index < len(self.bases) else self.end

    def check(self) -> list[Violation]:
        found = []
        for index, (one, two) in enumerate(zip(self.exchanges, self.exchanges[1:], strict=False)):
            revision = two.response.revision
            if one.response.revision == revision:
                sentence = f"two exchanges have the revision {revision}"
                found.append(Violation("revision_repeated", sentence, {"revision": revision}))
            elif self._not_before[index] > two.end:
                sentence = f"revision {revision} was returned before an exchange with a lower revision began"
                found.append(Violation("revision_order", sentence, {"revision": revision}))
        return found


def _answered(operation: RecordedOperation, request: RecordedExchange, response: ExchangeReturned) -> AnsweredExchange:
    refusals = Counter((key.job_id, key.token) for key in response.refused)
    accepted: list[RecordedSettlement] = []
    refused: list[RecordedSettlement] = []
    # A key that was sent twice and refused once was accepted the first time: go backwards.
    for sent in reversed(request.settlements):
        key = (sent.job_id, sent.token)
        if refusals[key]:
            refusals[key] -= 1
            refused.append(sent)
        else:
            accepted.append(sent)
    settled = tuple(accepted[::-1]), tuple(refused[::-1])
    return AnsweredExchange(request, response, operation.begin, operation.end, *settled)


def _lowest_from(values: list[int]) -> list[int]:
    return list(accumulate(reversed(values), min))[::-1]
