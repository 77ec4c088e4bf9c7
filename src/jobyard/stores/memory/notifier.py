"""Notifier: waits for work and for the end of a job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from jobyard.domain.job import Job
from jobyard.stores._shared.limits import MIN_WAIT_SECONDS
from jobyard.stores.memory.codec import job_of
from jobyard.stores.memory.connection import MemoryConnection


class MemoryNotifier:
    def __init__(self, connection: MemoryConnection) -> None:
        self._connection = connection

    async def wait_for_work(self, queues: Sequence[str], timeout_seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        jobs, cancel_requests = self._connection.jobs, self._connection.cancel_requests
        while True:
            with self._connection.locked() as now:
                if self._connection.cancel_requests != cancel_requests or jobs.next_in_line(queues) is not None:
                    return True
                remaining = deadline - loop.time()
                if remaining <= 0:
                    return False
                due_at = jobs.next_due_at()
                change = self._connection.waiters.add()
            await self._wait(change, remaining if due_at is None else min(remaining, (due_at - now) / 1000))

    async def wait_for_end(self, job_id: str, timeout_seconds: float) -> Job | None:
        awaited = self._connection.awaited
        awaited[job_id] += 1
        try:
            return await self._end(job_id, timeout_seconds)
        finally:
            awaited[job_id] -= 1
            if not awaited[job_id]:
                del awaited[job_id]

    async def _end(self, job_id: str, timeout_seconds: float) -> Job | None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        while True:
            with self._connection.locked():
                stored = self._connection.jobs.require(job_id)
                if stored.state.is_final:
                    return job_of(stored)
                remaining = deadline - loop.time()
                if remaining <= 0:
                    return None
                change = self._connection.waiters.add()
            await self._wait(change, remaining)

    async def _wait(self, change: asyncio.Future[None], seconds: float) -> None:
        try:
            await asyncio.wait([change], timeout=max(seconds, MIN_WAIT_SECONDS))
        finally:
            self._connection.waiters.discard(change)
