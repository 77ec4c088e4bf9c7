"""Chart history: what processes count is appended to logs of the store, one per range, bounded, and merged by readers.

Entries are differences, so those of all processes of an interval add up, whenever each of them writes.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import msgspec

from jobyard.domain.instant import Instant
from jobyard.ports.record_store import RecordStore

# Of more queues than these in one entry, the busiest are kept apart: an entry must stay small.
MAX_QUEUES = 200
# The sum of the queues beyond these. No queue has this name.
OTHER_QUEUES = ""
# An entry in this many is followed by a removal of old ones, of at most OLD_ENTRIES.
TRIM_EVERY = 50
OLD_ENTRIES = 500


class ChartRange(StrEnum):
    FIVE_MINUTES = "5m"
    HOUR = "1h"
    DAY = "24h"


class Resolution(NamedTuple):
    log: str
    interval_ms: int
    points: int
    write_seconds: float  # how often a process appends what it counted

    @property
    def kept_ms(self) -> int:
        return self.interval_ms * (self.points + 1)

    def interval_of(self, at: Instant) -> Instant:
        return at - at % self.interval_ms


RESOLUTIONS = {
    ChartRange.FIVE_MINUTES: Resolution("jobyard.chart.5m", 5_000, 60, 5.0),
    ChartRange.HOUR: Resolution("jobyard.chart.1h", 20_000, 180, 20.0),
    # Written more often than an interval, because a process that is killed loses what it has not written.
    ChartRange.DAY: Resolution("jobyard.chart.24h", 300_000, 288, 60.0),
}

Buckets: TypeAlias = Counter[int]


class QueueTally(msgspec.Struct, omit_defaults=True):
    """What happened to the jobs of one queue."""

    started: int = 0
    finished: int = 0
    failed: int = 0  # of those finished: FAILED and TIMEOUT
    waits: dict[int, int] = {}  # a sample of the started ones, by bucket of `domain.histogram`
    runs: dict[int, int] = {}  # attempts that ended

    def add(self, other: QueueTally) -> None:
        self.started += other.started
        self.finished += other.finished
        self.failed += other.failed
        _add_buckets(self.waits, other.waits)
        _add_buckets(self.runs, other.runs)

    def subtract(self, other: QueueTally) -> None:
        """Undo `add`."""
        self.started -= other.started
        self.finished -= other.finished
        self.failed -= other.failed
        _subtract_buckets(self.waits, other.waits)
        _subtract_buckets(self.runs, other.runs)

    @property
    def is_empty(self) -> bool:
        return not (self.started or self.finished or self.waits or self.runs)


def _subtract_buckets(mine: dict[int, int], other: dict[int, int]) -> None:
    for bucket, count in other.items():
        mine[bucket] -= count
        if not mine[bucket]:
            del mine[bucket]


def _add_buckets(mine: dict[int, int], other: dict[int, int]) -> None:
    for bucket, count in other.items():
        mine[bucket] = mine.get(bucket, 0) + count


class Gauge(msgspec.Struct, frozen=True, array_like=True):
    waiting: int
    running: int


class ChartEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    interval: Instant  # its start
    tallies: dict[str, QueueTally] = {}
    gauges: dict[str, Gauge] | None = None  # of all queues, at some moment of the interval; None: not measured


_encode = msgspec.json.Encoder().encode
decode_entry = msgspec.json.Decoder(ChartEntry).decode


async def append_entry(store: RecordStore, resolution: Resolution, entry: ChartEntry, now: Instant) -> None:
    number = await store.append(resolution.log, _encode(entry))
    if number % TRIM_EVERY == 0:
        oldest = await store.read(resolution.log, 0, OLD_ENTRIES)
        old = [each.number for each in oldest if each.at < now - resolution.kept_ms]
        if old:
            await store.trim(resolution.log, old[-1])


def busiest(tallies: dict[str, QueueTally], most: int = MAX_QUEUES) -> dict[str, QueueTally]:
    """The busiest queues, and the sum of the others.

    >>> found = busiest({"a": QueueTally(finished=1), "b": QueueTally(finished=9), "c": QueueTally(finished=2)}, 1)
    >>> {name: tally.finished for name, tally in found.items()}
    {'b': 9, '': 3}
    """
    named = tallies.keys() - {OTHER_QUEUES}
    if len(named) <= most:
        return tallies
    names = sorted(named, key=lambda name: (-(tallies[name].started + tallies[name].finished), name))
    found = {name: tallies[name] for name in names[:most]}
    found[OTHER_QUEUES] = others = QueueTally(waits={}, runs={})
    for name in (*names[most:], OTHER_QUEUES):
        if name in tallies:
            others.add(tallies[name])
    return found


def longest_queues(gauges: dict[str, Gauge]) -> dict[str, Gauge]:
    """The longest queues, and the sum of the others."""
    if len(gauges) <= MAX_QUEUES:
        return gauges
    names = sorted(gauges, key=lambda name: -(gauges[name].waiting + gauges[name].running))
    others = [gauges[name] for name in names[MAX_QUEUES:]]
    found = {name: gauges[name] for name in names[:MAX_QUEUES]}
    found[OTHER_QUEUES] = Gauge(sum(each.waiting for each in others), sum(each.running for each in others))
    return found
