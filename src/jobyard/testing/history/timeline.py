"""One line of positions: exchanges by revision, everything else between the exchanges that enclose it.

An exchange has a position for its settlements and one more for each lease it gave. What carries no revision is known
only by its bracket: at positions before `earliest` it certainly had not happened, from `latest` on it certainly had.
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
class Made:
    """An exchange with its answer."""

    question: RecordedExchange
    answer: ExchangeReturned
    begin: int
    end: int
    accepted: tuple[RecordedSettlement, ...]
    refused: tuple[RecordedSettlement, ...]


class Timeline:
    def __init__(self, history: History) -> None:
        self.idle: list[Made] = []  # changed nothing, so their place does not matter
        # May have changed something, at an unknown position.
        self.lost: list[tuple[RecordedOperation, RecordedExchange]] = []
        self.exchanges: list[Made] = []
        for operation, question, answer in history.select(RecordedExchange, ExchangeReturned):
            if answer is None:
                self.lost.append((operation, question))
                continue
            made = _made(operation, question, answer)
            (self.exchanges if made.accepted or answer.leases else self.idle).append(made)
        self.exchanges.sort(key=lambda made: (made.answer.revision, made.begin))
        self.bases = list(accumulate((1 + len(made.answer.leases) for made in self.exchanges), initial=0))
        self.end = self.bases.pop()  # behind the last position
        # Commits follow each other in the order of revisions, so each bracket also bounds its neighbours.
        self._not_before = list(accumulate((made.begin for made in self.exchanges), max))
        self._not_after = _from_behind([made.end for made in self.exchanges])
        self._now_from = _from_behind([made.answer.now for made in self.exchanges])
        answered = self.exchanges + self.idle
        by_begin = sorted(answered, key=lambda made: made.begin)
        self._begins = [made.begin for made in by_begin]
        self._now_after = _from_behind([made.answer.now for made in by_begin])
        by_end = sorted(answered, key=lambda made: made.end)
        self._ends = [made.end for made in by_end]
        self._now_before = list(accumulate((made.answer.now for made in by_end), max))

    def earliest(self, begin: int) -> int:
        return self._base(bisect_left(self._not_after, begin))

    def latest(self, end: int) -> int:
        return self._base(bisect_right(self._not_before, end))

    def due_from(self, due: Instant) -> int:
        """The position from which on every exchange saw a job with this time as due."""
        return self._base(bisect_left(self._now_from, due))

    def now_at_most(self, end: int, delay_seconds: float = 0.0) -> Instant:
        """No later than this did the store's clock stand when something happened that ended then, plus a delay."""
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
            revision = two.answer.revision
            if one.answer.revision == revision:
                sentence = f"two exchanges have the revision {revision}"
                found.append(Violation("revision_repeated", sentence, {"revision": revision}))
            elif self._not_before[index] > two.end:
                sentence = f"revision {revision} was answered before an exchange with a lower revision began"
                found.append(Violation("revision_order", sentence, {"revision": revision}))
        return found


def _made(operation: RecordedOperation, question: RecordedExchange, answer: ExchangeReturned) -> Made:
    refusals = Counter((key.job_id, key.token) for key in answer.refused)
    accepted: list[RecordedSettlement] = []
    refused: list[RecordedSettlement] = []
    # A key that was sent twice and refused once was accepted the first time: walk from behind.
    for sent in reversed(question.settlements):
        key = (sent.job_id, sent.token)
        if refusals[key]:
            refusals[key] -= 1
            refused.append(sent)
        else:
            accepted.append(sent)
    return Made(question, answer, operation.begin, operation.end, tuple(accepted[::-1]), tuple(refused[::-1]))


def _from_behind(values: list[int]) -> list[int]:
    return list(accumulate(reversed(values), min))[::-1]
