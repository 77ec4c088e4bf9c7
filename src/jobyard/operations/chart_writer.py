"""Writes what this process counted to the chart history, every few seconds, and samples the wait times of jobs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from jobyard.domain.histogram import bucket_of
from jobyard.domain.instant import Instant
from jobyard.domain.job import State
from jobyard.operations.chart_log import (
    RESOLUTIONS,
    ChartEntry,
    ChartRange,
    Gauge,
    QueueTally,
    append_entry,
    busiest,
)
from jobyard.ports.admin_store import Filter
from jobyard.ports.store import Store

log = logging.getLogger("jobyard.charts")

STEP_SECONDS = 5.0
STOP_SECONDS = 2.0
# Jobs per step whose wait is looked up in the store: a lease does not carry the time since when its job was due.
MAX_SAMPLE = 20


class ChartTally:
    """Counts since the last time that they were taken. Used from one event loop."""

    def __init__(self) -> None:
        self.queues: dict[str, QueueTally] = {}
        self.sample: dict[str, int] = {}  # attempt of some started jobs, by id

    def queue(self, name: str) -> QueueTally:
        found = self.queues.get(name)
        if found is None:
            found = self.queues[name] = QueueTally(waits={}, runs={})
        return found

    def started(self, queue: str, job_id: str, attempt: int) -> None:
        self.queue(queue).started += 1
        if len(self.sample) < MAX_SAMPLE:
            self.sample[job_id] = attempt

    def ended(self, queue: str, seconds: float, to: State) -> None:
        """Count an attempt that ended, with the state that its job went to."""
        tally = self.queue(queue)
        bucket = bucket_of(seconds)
        tally.runs[bucket] = tally.runs.get(bucket, 0) + 1
        if to.is_final:
            tally.finished += 1
            tally.failed += to in (State.FAILED, State.TIMEOUT)

    def take(self) -> tuple[dict[str, QueueTally], dict[str, int]]:
        taken = self.queues, self.sample
        self.queues, self.sample = {}, {}
        return taken


class ChartWriter:
    """A service of a process: with a tally it writes counts, with `gauges` the length of the queues."""

    def __init__(
        self,
        store: Store,
        tally: ChartTally | None = None,
        gauges: Callable[[ChartRange, Instant], Awaitable[dict[str, Gauge] | None]] | None = None,
        step_seconds: float = STEP_SECONDS,
    ) -> None:
        self._store = store
        self._tally = tally
        self._gauges = gauges
        self._step = step_seconds
        self._pending: dict[ChartRange, dict[str, QueueTally]] = {each: {} for each in ChartRange}
        self._written: dict[ChartRange, Instant] = {}
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        if self._task is None:
            self._stopping.clear()
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Write what is left, then end; safe twice."""
        task, self._task = self._task, None
        if task is not None:
            self._stopping.set()
            await asyncio.wait([task], timeout=STOP_SECONDS)
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            is_last = self._stopping.is_set()
            try:
                await self.run_once(is_last=is_last)
            except Exception:
                log.debug("the chart history could not be written; tried again later", exc_info=True)
            if is_last:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._step):
                    await self._stopping.wait()

    async def run_once(self, *, is_last: bool = False) -> None:
        """Write to each log whose time has come."""
        taken, sample = ({}, {}) if self._tally is None else self._tally.take()
        for pending in self._pending.values():
            for name, tally in taken.items():
                pending.setdefault(name, QueueTally(waits={}, runs={})).add(tally)
        if sample:
            await self._add_waits(sample)
        if self._gauges is None and not any(self._pending.values()):
            self._written.clear()
            return
        now = await self._store.now()
        for chart_range, resolution in RESOLUTIONS.items():
            since = self._written.setdefault(chart_range, now - round(1000 * self._step))
            if now - since >= 1000 * resolution.write_seconds - 500 or is_last or since > now:
                await self._write(chart_range, since, now)

    async def _write(self, chart_range: ChartRange, since: Instant, now: Instant) -> None:
        resolution, pending = RESOLUTIONS[chart_range], self._pending[chart_range]
        # What was counted since the last write mostly belongs to the interval of the middle.
        interval = resolution.interval_of((since + now) // 2 if since <= now else now)
        gauges = None if self._gauges is None else await self._gauges(chart_range, interval)
        if pending or gauges is not None:
            entry = ChartEntry(interval, busiest(pending), gauges)
            await append_entry(self._store, resolution, entry, now)
        self._pending[chart_range], self._written[chart_range] = {}, now

    async def _add_waits(self, sample: dict[str, int]) -> None:
        page = await self._store.find(Filter(ids=tuple(sample)), len(sample))
        for job in page.jobs:
            if job.started_at is not None and job.attempt == sample[job.id]:  # else another attempt has started since
                bucket = bucket_of(max(0, job.started_at - max(job.created_at, job.run_at)) / 1000)
                for pending in self._pending.values():
                    waits = pending.setdefault(job.queue, QueueTally(waits={}, runs={})).waits
                    waits[bucket] = waits.get(bucket, 0) + 1
