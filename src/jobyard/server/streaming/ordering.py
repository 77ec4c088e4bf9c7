"""Order of the live events of a job, which the submitting server and the worker publish independently."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from jobyard.live_events.event import LiveEvent, LiveEventType

# Events that cannot precede `enqueued`. A failed or cancelled job can be enqueued again.
AFTER_ENQUEUED = (LiveEventType.STARTED, LiveEventType.PROGRESS, LiveEventType.COMPLETED, LiveEventType.RETRYING)
MAX_JOBS = 10_000  # whose last event is remembered


class EventSorter:
    def __init__(self) -> None:
        self._last: OrderedDict[str, LiveEventType] = OrderedDict()

    def sorted(self, events: Sequence[LiveEvent]) -> list[LiveEvent]:
        """Move `enqueued` before the later events of its job, or drop it: the job would seem to wait again."""
        late = self._late(events)
        found: list[LiveEvent] = []
        for event in events:
            job_id = event.job_id
            if event.type is LiveEventType.ENQUEUED and self._last.get(job_id) in AFTER_ENQUEUED:
                continue
            if event.type in AFTER_ENQUEUED and job_id in late and job_id not in self._last:
                found.append(late[job_id])
            if job_id:
                self._last[job_id] = event.type
                self._last.move_to_end(job_id)
            found.append(event)
        while len(self._last) > MAX_JOBS:
            self._last.popitem(last=False)
        return found

    def _late(self, events: Sequence[LiveEvent]) -> dict[str, LiveEvent]:
        """The `enqueued` events that follow a later event of the same job."""
        begun: set[str] = set()
        late: dict[str, LiveEvent] = {}
        for event in events:
            if event.type in AFTER_ENQUEUED:
                begun.add(event.job_id)
            elif event.type is LiveEventType.ENQUEUED and event.job_id in begun:
                late.setdefault(event.job_id, event)
        return late
