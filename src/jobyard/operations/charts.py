"""Charts: the merged history of all processes, read from the store as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from jobyard.api.schemas.charts import ChartView
from jobyard.domain.histogram import percentile
from jobyard.domain.instant import Instant, rfc3339
from jobyard.operations.chart_log import (
    OTHER_QUEUES,
    RESOLUTIONS,
    ChartEntry,
    ChartRange,
    Gauge,
    QueueTally,
    Resolution,
    busiest,
    decode_entry,
)
from jobyard.ports.store import Store

ENTRIES_PER_READ = 100
# Entries of many queues, and intervals of a chart, after which others get a turn on the event loop.
ENTRIES_PER_TURN, INTERVALS_PER_TURN = 5, 10
# Tallies of single queues in all intervals of a range, about 700 bytes each. Beyond these, each interval keeps the
# busiest queues and the sum of the others: processes may have thousands of queues.
MAX_TALLIES = 20_000
# Left after that, fewer than the limit so that it happens seldom.
TALLIES_AFTER_MERGE = 15_000
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class ChartInterval:
    """One interval: counts of all processes, and the last gauges."""

    __slots__ = ("gauges", "tallies", "total")

    def __init__(self) -> None:
        self.tallies: dict[str, QueueTally] = {}
        self.total = QueueTally(waits={}, runs={})  # of all queues: there may be thousands
        self.gauges: dict[str, Gauge] | None = None

    def add(self, entry: ChartEntry) -> None:
        for name, tally in entry.tallies.items():
            self.tallies.setdefault(name, QueueTally(waits={}, runs={})).add(tally)
            self.total.add(tally)
        if entry.gauges is not None:
            self.gauges = entry.gauges

    def merge_others(self, most: int) -> dict[str, QueueTally]:
        """Keep the busiest queues apart, at most `most`; return those that are among the others now."""
        before, self.tallies = self.tallies, busiest(self.tallies, most)
        return {name: tally for name, tally in before.items() if name not in self.tallies}

    def knows(self, queue: str) -> bool:
        """Whether it tells this queue from others; one that is missing had no jobs if there are no others."""
        return queue in self.tallies or OTHER_QUEUES not in self.tallies

    def tally(self, queues: Iterable[str] | None) -> QueueTally:
        if queues is None:
            return self.total
        found = QueueTally(waits={}, runs={})
        for name in queues:
            if name in self.tallies:
                found.add(self.tallies[name])
        return found

    def gauge(self, queues: Iterable[str] | None) -> Gauge | None:
        if self.gauges is None:
            return None
        chosen = (
            self.gauges.values() if queues is None else [self.gauges[name] for name in queues if name in self.gauges]
        )
        return Gauge(sum(each.waiting for each in chosen), sum(each.running for each in chosen))


class ChartHistory:
    """The intervals of one range, kept up to date by reading only what is new."""

    def __init__(self, store: Store, resolution: Resolution) -> None:
        self.resolution = resolution
        self.intervals: dict[Instant, ChartInterval] = {}
        self._totals: dict[str, QueueTally] = {}  # of each queue over all intervals
        self._count = 0  # of the tallies of all intervals
        self._store = store
        self._last = 0
        self._reading = asyncio.Lock()

    async def refresh(self, now: Instant) -> None:
        async with self._reading:
            while entries := await self._store.read(self.resolution.log, self._last, ENTRIES_PER_READ):
                for count, each in enumerate(entries, 1):
                    self._add(decode_entry(each.data))
                    self._last = each.number
                    if count % ENTRIES_PER_TURN == 0:
                        await asyncio.sleep(0)
                if len(entries) < ENTRIES_PER_READ:
                    break
            oldest = now - self.resolution.kept_ms
            for interval in [each for each in self.intervals if each < oldest]:
                self._forget(self.intervals.pop(interval))

    def _add(self, entry: ChartEntry) -> None:
        interval = self.intervals.setdefault(entry.interval, ChartInterval())
        before = len(interval.tallies)
        interval.add(entry)
        self._count += len(interval.tallies) - before
        self._add_to_totals(entry.tallies)
        if self._count > MAX_TALLIES:
            self._merge_others()

    def _merge_others(self) -> None:
        most = TALLIES_AFTER_MERGE // len(self.intervals)
        for interval in self.intervals.values():
            before = len(interval.tallies)
            if merged := interval.merge_others(most):
                self._count += len(interval.tallies) - before
                self._subtract_from_totals(merged)
                for tally in merged.values():
                    self._add_to_totals({OTHER_QUEUES: tally})

    def _forget(self, interval: ChartInterval) -> None:
        self._count -= len(interval.tallies)
        self._subtract_from_totals(interval.tallies)

    def _add_to_totals(self, tallies: Mapping[str, QueueTally]) -> None:
        for name, tally in tallies.items():
            self._totals.setdefault(name, QueueTally(waits={}, runs={})).add(tally)

    def _subtract_from_totals(self, tallies: Mapping[str, QueueTally]) -> None:
        for name, tally in tallies.items():
            self._totals[name].subtract(tally)
            if self._totals[name].is_empty:
                del self._totals[name]

    def of_queue(self, name: str) -> QueueTally:
        """What happened in the whole range in one queue."""
        return self._totals.get(name) or QueueTally(waits={}, runs={})

    def total(self, queues: Iterable[str] | None = None) -> QueueTally:
        """What happened in the whole range in these queues; None: in all."""
        found = QueueTally(waits={}, runs={})
        for name in self._totals if queues is None else queues:
            if name in self._totals:
                found.add(self._totals[name])
        return found

    def window(self, now: Instant) -> list[tuple[Instant, ChartInterval | None]]:
        """The intervals of which all processes have written, oldest first; None for one without data."""
        step = self.resolution.interval_ms
        end = self.resolution.interval_of(now - round(1000 * self.resolution.write_seconds))
        starts = range(end - self.resolution.points * step, end, step)
        return [(start, self.intervals.get(start)) for start in starts]


class Charts:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.histories = {each: ChartHistory(store, RESOLUTIONS[each]) for each in ChartRange}

    async def history(self, chart_range: ChartRange, now: Instant | None = None) -> ChartHistory:
        found = self.histories[chart_range]
        await found.refresh(await self._store.now() if now is None else now)
        return found

    async def chart(self, chart_range: ChartRange, queues: tuple[str, ...] | None = None) -> ChartView:
        """The chart of these queues together; None: of all."""
        now = await self._store.now()
        history = await self.history(chart_range, now)
        return await chart_view(chart_range, history, now, queues)

    async def recent(self, chart_range: ChartRange, queues: Iterable[str] | None = None) -> QueueTally:
        """What happened in the whole range."""
        now = await self._store.now()
        return (await self.history(chart_range, now)).total(queues)

    async def measured(self, chart_range: ChartRange, interval: Instant) -> bool:
        """Whether a process has written the gauges of this interval."""
        found = (await self.history(chart_range)).intervals.get(interval)
        return found is not None and found.gauges is not None


async def chart_view(
    chart_range: ChartRange, history: ChartHistory, now: Instant, queues: tuple[str, ...] | None
) -> ChartView:
    window = history.window(now)
    series: dict[str, list[float | None]] = {name: [] for name in SERIES}
    for count, (_, interval) in enumerate(window, 1):
        if queues is not None and count % INTERVALS_PER_TURN == 0:
            await asyncio.sleep(0)
        for name, value in values_of(interval, queues).items():
            series[name].append(value)
    step = history.resolution.interval_ms
    return ChartView(
        range=chart_range.value,
        interval_seconds=step / 1000,
        queue=queues[0] if queues is not None and len(queues) == 1 else None,
        at=tuple(rfc3339(start) for start, _ in window),
        **{name: tuple(values) for name, values in series.items()},
    )


SERIES = (
    *("finished", "failed", "started", "waiting", "running"),
    *(f"{what}_{name}_seconds" for what in ("wait", "run") for name in PERCENTILES),
)


def values_of(interval: ChartInterval | None, queues: tuple[str, ...] | None) -> dict[str, float | None]:
    found: dict[str, float | None] = dict.fromkeys(SERIES)
    if interval is None:
        return found
    if (gauge := interval.gauge(queues)) is not None:
        found |= {"waiting": gauge.waiting, "running": gauge.running}
    if queues is not None and not any(map(interval.knows, queues)):
        return found  # a gap: what they did is among the others
    tally = interval.tally(queues)
    found |= {"finished": tally.finished, "failed": tally.failed, "started": tally.started}
    for name, share in PERCENTILES.items():
        found[f"wait_{name}_seconds"] = rounded(percentile(tally.waits, share))
        found[f"run_{name}_seconds"] = rounded(percentile(tally.runs, share))
    return found


def rounded(seconds: float | None) -> float | None:
    """To four significant digits at most: the buckets are wider than that."""
    return None if seconds is None else float(f"{seconds:.4g}")
