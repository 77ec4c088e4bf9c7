"""Ticks: each instant of a schedule is decided once, and in ascending order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from jobyard.domain.instant import Instant
from jobyard.ports.schedule_store import Decision
from jobyard.testing.history.events import DecideReturned, DisarmReturned, RecordedDecide, RecordedDisarm
from jobyard.testing.history.reader import History, RecordedOperation
from jobyard.testing.history.violation import Violation

Decisions = list[tuple[RecordedOperation, Instant]]


def check_ticks(history: History) -> Iterator[Violation]:
    disarmed: dict[str, list[RecordedOperation]] = defaultdict(list)
    for operation, request, response in history.select(RecordedDisarm, DisarmReturned):
        if response is None or response.was_armed:
            disarmed[request.schedule].append(operation)
    for schedule, decisions in _decisions(history).items():
        yield from _twice(schedule, decisions, disarmed[schedule])
        yield from _backwards(schedule, decisions, disarmed[schedule])


def _decisions(history: History) -> dict[str, Decisions]:
    """Decisions by schedule; within a call in the order of its ticks."""
    found: dict[str, Decisions] = defaultdict(list)
    for operation, request, response in history.select(RecordedDecide, DecideReturned):
        for due, decided in zip(request.ticks, response.decided, strict=True) if response else ():
            if decided.decision is Decision.MADE:
                found[due.schedule].append((operation, due.at))
    return found


def _twice(schedule: str, decisions: Decisions, disarmed: list[RecordedOperation]) -> Iterator[Violation]:
    seen: dict[Instant, RecordedOperation] = {}
    for operation, at in sorted(decisions, key=lambda one: one[0].begin):
        earlier = seen.get(at)
        if earlier is not None and not _may_be_forgotten(disarmed, earlier, operation):
            sentence = f"the instant {at} of schedule {schedule} was decided twice"
            yield Violation("tick_decided_twice", sentence, {"schedule": schedule, "at": at})
        seen[at] = operation


def _backwards(schedule: str, decisions: Decisions, disarmed: list[RecordedOperation]) -> Iterator[Violation]:
    """Compares only calls of which one ended before the other began: overlapping calls may take effect in any order."""
    ends = sorted(decisions, key=lambda one: one[0].end)
    furthest: tuple[RecordedOperation, Instant] | None = None
    position = 0
    for operation, at in sorted(decisions, key=lambda one: one[0].begin):
        while ends[position][0].end < operation.begin:
            if furthest is None or ends[position][1] >= furthest[1]:
                furthest = ends[position]
            position += 1
        if furthest is not None and at < furthest[1] and not _may_be_forgotten(disarmed, furthest[0], operation):
            sentence = f"the instant {at} of schedule {schedule} was decided after {furthest[1]}"
            yield Violation("tick_went_back", sentence, {"schedule": schedule, "at": at, "after": furthest[1]})


def _may_be_forgotten(disarmed: list[RecordedOperation], earlier: RecordedOperation, later: RecordedOperation) -> bool:
    """Whether the schedule may have been disarmed between the two, which removes its decided ticks."""
    return any(one.begin < later.end and one.end > earlier.begin for one in disarmed)
