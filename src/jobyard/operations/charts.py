"""Charts: the merged history of all processes, read from the store as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from jobyard.api.schemas.charts import ChartView
from jobyard.domain.histogram import percentile
from jobyard.domain.instant import Instant, rfc3339
from jobyard.operations.chart_log import (
    RESOLUTIONS,
    ChartEntry,
    ChartRange,
    Gauge,
    QueueTally,
    Resolution,
    decode_entry,
)
from jobyard.ports.store import Store

ENTRIES_PER_READ = 1000
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class ChartInterval:
    """One interval: counts of all processes, and the last gauges."""

    __slots__ = ("gauges", "tallies")

    def __init__(self) -> None:
        self.tallies: dict[str, QueueTally] = {}
        self.gauges: dict[str, Gauge] | None = None

    def add(self, entry: ChartEntry) -> None:
        for name, tally in entry.tallies.items():
            self.tallies.setdefault(name, QueueTally(waits={}, runs={})).add(tally)
        if entry.gauges is not None:
            self.gauges = entry.gauges

    def tally(self, queues: Iterable[str] | None) -> QueueTally:
        found = QueueTally(waits={}, runs={})
        for name in self.tallies if queues is None else queues:
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
        self._store = store
        self._last = 0
        self._reading = asyncio.Lock()

    async def refresh(self, now: Instant) -> None:
        async with self._reading:
            while entries := await self._store.read(self.resolution.log, self._last, ENTRIES_PER_READ):
                for each in entries:
                    entry = decode_entry(each.data)
                    self.intervals.setdefault(entry.interval, ChartInterval()).add(entry)
                self._last = entries[-1].number
                if len(entries) < ENTRIES_PER_READ:
                    break
            oldest = now - self.resolution.kept_ms
            for interval in [each for each in self.intervals if each < oldest]:
                del self.intervals[interval]

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
        return chart_view(chart_range, history, now, queues)

    async def recent(self, chart_range: ChartRange, queues: Iterable[str] | None = None) -> QueueTally:
        """What happened in the whole range."""
        now = await self._store.now()
        history = await self.history(chart_range, now)
        total = QueueTally(waits={}, runs={})
        chosen = None if queues is None else tuple(queues)
        for interval in history.intervals.values():
            total.add(interval.tally(chosen))
        return total

    async def measured(self, chart_range: ChartRange, interval: Instant) -> bool:
        """Whether a process has written the gauges of this interval."""
        found = (await self.history(chart_range)).intervals.get(interval)
        return found is not None and found.gauges is not None


def chart_view(
    chart_range: ChartRange, history: ChartHistory, now: Instant, queues: tuple[str, ...] | None
) -> ChartView:
    window = history.window(now)
    series: dict[str, list[float | None]] = {name: [] for name in SERIES}
    for _, interval in window:
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
    if interval is None:
        return dict.fromkeys(SERIES)
    tally, gauge = interval.tally(queues), interval.gauge(queues)
    found: dict[str, float | None] = {
        "finished": tally.finished,
        "failed": tally.failed,
        "started": tally.started,
        "waiting": None if gauge is None else gauge.waiting,
        "running": None if gauge is None else gauge.running,
    }
    for name, share in PERCENTILES.items():
        found[f"wait_{name}_seconds"] = rounded(percentile(tally.waits, share))
        found[f"run_{name}_seconds"] = rounded(percentile(tally.runs, share))
    return found


def rounded(seconds: float | None) -> float | None:
    """To four significant digits at most: the buckets are wider than that."""
    return None if seconds is None else float(f"{seconds:.4g}")
