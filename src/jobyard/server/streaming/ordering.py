"""Hints of one job in an order that makes sense: whoever hands it in and whoever runs it tell of it apart."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from jobyard.live_events.event import LiveEvent, LiveEventType

# What cannot come before the job was handed in; one that failed or was cancelled may well be handed in anew.
BEGUN = (LiveEventType.STARTED, LiveEventType.PROGRESS, LiveEventType.COMPLETED, LiveEventType.RETRYING)
REMEMBERED = 10_000


class EventSorter:
    def __init__(self) -> None:
        self._last: OrderedDict[str, LiveEventType] = OrderedDict()

    def sorted(self, hints: Sequence[LiveEvent]) -> list[LiveEvent]:
        """That a job was handed in is told before what became of it, or not at all: else it looked as if it waited."""
        late = self._late(hints)
        found: list[LiveEvent] = []
        for hint in hints:
            job_id = hint.job_id
            if hint.type is LiveEventType.ENQUEUED and self._last.get(job_id) in BEGUN:
                continue
            if hint.type in BEGUN and job_id in late and job_id not in self._last:
                found.append(late[job_id])
            if job_id:
                self._last[job_id] = hint.type
                self._last.move_to_end(job_id)
            found.append(hint)
        while len(self._last) > REMEMBERED:
            self._last.popitem(last=False)
        return found

    def _late(self, hints: Sequence[LiveEvent]) -> dict[str, LiveEvent]:
        """Those of the jobs that had begun when it was told that they were handed in."""
        begun: set[str] = set()
        late: dict[str, LiveEvent] = {}
        for hint in hints:
            if hint.type in BEGUN:
                begun.add(hint.job_id)
            elif hint.type is LiveEventType.ENQUEUED and hint.job_id in begun:
                late.setdefault(hint.job_id, hint)
        return late
