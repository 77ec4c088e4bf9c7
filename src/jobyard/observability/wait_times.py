"""Queue wait times of jobs: a sample, looked up in the store."""

from __future__ import annotations

import asyncio
import logging

from jobyard.domain import events as e
from jobyard.domain.lease import Lease
from jobyard.observability.metrics import Metrics
from jobyard.ports.admin_store import Filter
from jobyard.ports.store import Store

log = logging.getLogger("jobyard.metrics")

# A lookup takes the jobs that start within GATHER_SECONDS of the first, at most this many; the next one follows after a
# pause. Without these bounds the lookups would compete with the claims.
MAX_SAMPLE = 50
GATHER_SECONDS = 0.01
PAUSE_SECONDS = 0.24


class WaitTimeSampler:
    """An observer that samples started jobs, because a lease does not carry the time its job was due.

    With few jobs the sample is all of them.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._started: dict[str, Lease] = {}
        self._is_open = False
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def wants_each_job(self) -> bool:
        return self._is_open

    def observe(self, event: e.Event) -> None:
        if self._is_open and isinstance(event, e.JobStarted):
            self._started[event.lease.job_id] = event.lease
            self._is_open = len(self._started) < MAX_SAMPLE
            if len(self._started) == 1 and self._loop is not None:
                self._loop.call_soon_threadsafe(self._wake.set)

    async def start(self, store: Store) -> None:
        if self._task is None:
            self._loop = asyncio.get_running_loop()
            self._task = self._loop.create_task(self._run(store))

    async def stop(self) -> None:
        """Safe twice."""
        task, self._task = self._task, None
        self._is_open = False
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self, store: Store) -> None:
        while True:
            self._is_open = True
            await self._wake.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._is_open = False
            try:
                await self.run_once(store)
            except Exception:
                log.debug("wait times could not be looked up", exc_info=True)
            await asyncio.sleep(PAUSE_SECONDS)

    async def run_once(self, store: Store) -> None:
        self._wake.clear()
        started, self._started = self._started, {}
        page = await store.find(Filter(ids=tuple(started)), len(started))
        for job in page.jobs:
            lease = started[job.id]
            if job.started_at is not None and job.attempt == lease.attempt:  # else another attempt has started since
                waited = max(0, job.started_at - max(job.created_at, job.run_at))
                self._metrics.waited(lease.queue, lease.kind, waited / 1000)
