"""The metrics of a worker process, and how they reach its supervisor: through a pipe, so that one scrape has all."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from jobyard.app.jobyard import Jobyard
from jobyard.observability.composite import CompositeObserver
from jobyard.observability.metric_changes import MetricChanges, SampleChange
from jobyard.observability.metrics import Metrics
from jobyard.observability.wait_times import WaitTimeSampler

log = logging.getLogger("jobyard.metrics")

REPORT_SECONDS = 1.0
# With very many series, collecting them takes long: a report then waits for this many times as long.
PAUSE_FACTOR = 20
# Each line of a report has at most this many changes, so that the reader needs little memory.
MAX_CHANGES = 1000
# A supervisor that does not read must not delay the end of its worker.
LAST_REPORT_SECONDS = 1.0


class WorkerMetrics:
    """Counts and measures what a worker does. Make it before the worker, so that it observes all events."""

    def __init__(self, yard: Jobyard) -> None:
        self.metrics = Metrics()
        self._yard = yard
        self._waits = WaitTimeSampler(self.metrics)
        yard.observer = CompositeObserver(yard.observer, self.metrics, self._waits)

    async def start(self) -> None:
        await self._waits.start(self._yard.store)

    async def stop(self) -> None:
        """Safe twice."""
        await self._waits.stop()


class MetricsReporter:
    """Writes the changes of the metrics to the pipe of the supervisor, and the last ones when the worker has ended."""

    def __init__(self, measured: WorkerMetrics, pipe: int) -> None:
        self._measured = measured
        self._changes = MetricChanges(measured.metrics.registry)
        self._pipe = pipe
        self._unsent = b""
        os.set_blocking(pipe, False)
        os.set_inheritable(pipe, False)  # the pipe must end with this process, not with a child of a handler

    @asynccontextmanager
    async def reporting(self) -> AsyncIterator[None]:
        await self._measured.start()
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            await self._measured.stop()
            await self._finish()

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            self.run_once()
            await asyncio.sleep(max(REPORT_SECONDS, PAUSE_FACTOR * (time.monotonic() - began)))

    def run_once(self) -> None:
        """Write what the pipe takes. Nothing new is collected before the last report is written."""
        if not self._unsent:
            changes = self._changes.take()
            parts = (changes[first : first + MAX_CHANGES] for first in range(0, len(changes), MAX_CHANGES))
            self._unsent = b"".join(msgspec.json.encode(part) + b"\n" for part in parts)
        with contextlib.suppress(BlockingIOError):
            while self._unsent:
                try:
                    self._unsent = self._unsent[os.write(self._pipe, self._unsent[:65536]) :]
                except BrokenPipeError:  # the supervisor is gone
                    self._unsent = b""

    async def _finish(self) -> None:
        deadline = time.monotonic() + LAST_REPORT_SECONDS
        self.run_once()
        while self._unsent and time.monotonic() < deadline:
            await asyncio.sleep(0.01)  # the pipe is full: the server empties it within milliseconds
            self.run_once()
        if not self._unsent:
            self.run_once()
        os.close(self._pipe)


def add_report(metrics: Metrics, line: bytes) -> None:
    """Add a line of a report to the metrics of the supervisor."""
    try:
        metrics.add(msgspec.json.decode(line, type=list[SampleChange]))
    except msgspec.DecodeError:
        log.warning("a report of metrics cannot be read; it is not counted")
