"""The schedules that a scheduler knows, in a priority queue by the time of their next check."""

from __future__ import annotations

import heapq
import itertools
import logging
from collections.abc import Iterable, Iterator

from jobyard.domain.due import next_instant
from jobyard.domain.instant import Instant
from jobyard.domain.schedule import Schedule
from jobyard.errors import BadOption

log = logging.getLogger("jobyard.scheduler")


class TimetableEntry:
    """A schedule and what is known about its ticks."""

    __slots__ = (
        "asked_at",
        "check_at",
        "decided_until",
        "has_left",
        "held",
        "next_at",
        "number",
        "schedule",
        "version",
        "warned_at",
    )

    def __init__(self, schedule: Schedule, version: int, decided_until: Instant) -> None:
        self.schedule = schedule
        self.version = version  # of its record
        self.decided_until = decided_until  # at least: other schedulers may have decided more
        self.asked_at: Instant = 0  # when `decided_until` was last read from the store
        self.has_left = not schedule.has_moved  # no job of it is unfinished in another queue
        self.held: Instant | None = None  # up to here, the store reported that an earlier job has not ended
        self.next_at: Instant | None = None  # its first tick that is not known to be decided
        self.check_at: Instant | None = None  # when to check it again
        self.number = 0  # of its valid entry in the heap
        self.warned_at: Instant = 0  # when the full queue was last reported


class Timetable:
    def __init__(self) -> None:
        self._entries: dict[str, TimetableEntry] = {}
        self._heap: list[tuple[Instant, int, TimetableEntry]] = []  # an outdated item stays until it is reached
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: str) -> TimetableEntry | None:
        return self._entries.get(name)

    def between(self, after: str, last: str | None) -> Iterator[str]:
        """The names after `after`, up to `last` (None: to the end)."""
        return (name for name in self._entries if name > after and (last is None or name <= last))

    def put(self, schedule: Schedule, version: int, decided_until: Instant) -> TimetableEntry:
        """Add or replace a schedule, and forget what was known about its earlier definition."""
        self.remove(schedule.name)
        entry = TimetableEntry(schedule, version, decided_until)
        self._entries[schedule.name] = entry
        self.advance(entry)
        return entry

    def remove(self, name: str) -> None:
        entry = self._entries.pop(name, None)
        if entry is not None:
            self.schedule(entry, None)

    def advance(self, entry: TimetableEntry) -> None:
        """Schedule the entry for its next tick."""
        schedule = entry.schedule
        try:
            entry.next_at = next_instant(schedule, entry.decided_until) if schedule.enabled else None
        except BadOption as error:  # for example a time zone that this machine does not know
            entry.next_at = None
            log.warning("schedule %s cannot be fired by this process: %s", schedule.name, error)
        self.schedule(entry, entry.next_at)

    def schedule(self, entry: TimetableEntry, at: Instant | None) -> None:
        """Check the entry at that time, and not before."""
        entry.check_at = at
        entry.number = next(self._numbers)
        if at is not None:
            heapq.heappush(self._heap, (at, entry.number, entry))
        if len(self._heap) > 2 * len(self._entries) + 64:
            # Schedules that change often and are due late would fill the heap with outdated items.
            self._heap = [item for item in self._heap if item[1] == item[2].number]
            heapq.heapify(self._heap)

    def next_check(self) -> Instant | None:
        while self._heap and self._heap[0][1] != self._heap[0][2].number:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: Instant) -> list[TimetableEntry]:
        """Remove and return the entries that are to be checked by now, in order; the caller schedules them again."""
        found: list[TimetableEntry] = []
        while (at := self.next_check()) is not None and at <= now:
            found.append(heapq.heappop(self._heap)[2])
        return found

    def is_current(self, entry: TimetableEntry) -> bool:
        return self._entries.get(entry.schedule.name) is entry

    def current(self, entries: Iterable[TimetableEntry]) -> list[TimetableEntry]:
        """The entries that were not changed or removed meanwhile."""
        return [entry for entry in entries if self.is_current(entry)]
