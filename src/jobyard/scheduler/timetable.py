"""What a scheduler knows of each schedule, and which is due next: looking costs nothing for those that are not."""

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


class Entry:
    __slots__ = (
        "asked_at", "decided_until", "held", "look_at", "next_at", "number", "schedule", "version", "warned_at",
    )  # fmt: skip

    def __init__(self, schedule: Schedule, version: int, decided_until: Instant) -> None:
        self.schedule = schedule
        self.version = version  # of its record
        self.decided_until = decided_until  # at least: others may have decided more
        self.asked_at: Instant = 0  # when the store was last asked for `decided_until`
        self.held: Instant | None = None  # up to here the store said that an earlier job is not over
        self.next_at: Instant | None = None  # its first instant that is not known to be decided
        self.look_at: Instant | None = None  # when to look at it again
        self.number = 0  # of its place in the line
        self.warned_at: Instant = 0  # when somebody was last told that its queue is full


class Timetable:
    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._line: list[tuple[Instant, int, Entry]] = []  # a place that was given up stays until it is reached
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: str) -> Entry | None:
        return self._entries.get(name)

    def between(self, after: str, last: str | None) -> Iterator[str]:
        """Names later than `after`, up to `last`; None: all of them."""
        return (name for name in self._entries if name > after and (last is None or name <= last))

    def put(self, schedule: Schedule, version: int, decided_until: Instant) -> Entry:
        """A definition as it is now; what was known of an earlier one is forgotten."""
        self.remove(schedule.name)
        entry = Entry(schedule, version, decided_until)
        self._entries[schedule.name] = entry
        self.go_on(entry)
        return entry

    def remove(self, name: str) -> None:
        entry = self._entries.pop(name, None)
        if entry is not None:
            self.look(entry, None)

    def go_on(self, entry: Entry) -> None:
        """To its next instant."""
        schedule = entry.schedule
        try:
            entry.next_at = next_instant(schedule, entry.decided_until) if schedule.enabled else None
        except BadOption as error:  # a zone, say, that only other machines know
            entry.next_at = None
            log.warning("schedule %s cannot fire here: %s", schedule.name, error)
        self.look(entry, entry.next_at)

    def look(self, entry: Entry, at: Instant | None) -> None:
        """Look at it then, and not before."""
        entry.look_at = at
        entry.number = next(self._numbers)
        if at is not None:
            heapq.heappush(self._line, (at, entry.number, entry))
        if len(self._line) > 2 * len(self._entries) + 64:
            # Of schedules that are changed often and far off, the places given up would pile up.
            self._line = [place for place in self._line if place[1] == place[2].number]
            heapq.heapify(self._line)

    def next_look(self) -> Instant | None:
        while self._line and self._line[0][1] != self._line[0][2].number:
            heapq.heappop(self._line)
        return self._line[0][0] if self._line else None

    def take_due(self, now: Instant) -> list[Entry]:
        """All that are to be looked at by now, in order; whoever takes them says when to look again."""
        found: list[Entry] = []
        while (at := self.next_look()) is not None and at <= now:
            found.append(heapq.heappop(self._line)[2])
        return found

    def is_current(self, entry: Entry) -> bool:
        return self._entries.get(entry.schedule.name) is entry

    def current(self, entries: Iterable[Entry]) -> list[Entry]:
        """Without those that were changed or removed meanwhile."""
        return [entry for entry in entries if self.is_current(entry)]
