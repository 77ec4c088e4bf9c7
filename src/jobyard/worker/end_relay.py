"""Relay of ended jobs: delivers the ends of child jobs to their parents soon after they happen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Container, Sequence

from jobyard.domain.events import StoreFailed
from jobyard.domain.history import EndedJob
from jobyard.domain.job import State
from jobyard.domain.lease import LeaseKey
from jobyard.executors.workflow.relay import BATCH, deliver_completed, deliver_ended
from jobyard.ports.observer import Emit
from jobyard.ports.store import Store
from jobyard.worker.child_ends import LocalChildEnds
from jobyard.worker.exchange_batch import PendingSettlement

# Ends that no worker settles (a cancel by an operator, a quarantine) are looked for this often.
LOOK_EVERY_SECONDS = 2.0


async def prune(store: Store, limit: int) -> int:
    """Remove finished jobs, after their ends were delivered: only the history of a workflow knows its child jobs."""
    while await deliver_ended(store):
        pass
    return await store.prune(limit)


class EndRelay:
    """Delivers ends when this worker has settled some, and now and then those of others."""

    def __init__(self, store: Store, emit: Emit, child_ends: LocalChildEnds) -> None:
        self._store = store
        self._emit = emit
        self._child_ends = child_ends
        self._settled = asyncio.Event()
        self._completed: list[EndedJob] = []  # settled by this worker, not delivered yet
        self._must_look = False  # there are ends that only the store knows
        self._next_look = 0.0  # by time.monotonic
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="jobyard-end-relay")

    async def stop(self) -> None:
        """Deliver what this worker has settled, then stop; safe twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
            if self._settled.is_set():
                await self.run_once()

    def settled(self, settlements: Sequence[PendingSettlement], refused: Container[LeaseKey]) -> None:
        """Jobs have been settled: note the ends of child jobs and of workflows."""
        for lease, settlement, _, awaits_commit, _ in settlements:
            if lease.parent is None and not lease.is_workflow:
                continue
            transition = settlement.transition
            if transition.to is not State.COMPLETED or awaits_commit or settlement.key in refused:
                self._must_look = self._must_look or transition.to.is_final
            elif lease.parent is not None:
                self._completed.append(
                    EndedJob(job_id=lease.job_id, state=transition.to, parent=lease.parent, result=transition.result)
                )
        if self._completed or self._must_look:
            self._settled.set()

    async def run_once(self) -> None:
        """Deliver what this worker has settled, and, unless that was done shortly before, look for other ends."""
        self._settled.clear()
        completed, self._completed = self._completed, []
        looks, self._must_look = self._must_look or time.monotonic() >= self._next_look, False
        try:
            for at in range(0, len(completed), BATCH):
                batch = completed[at : at + BATCH]
                await deliver_completed(self._store, batch)
                self._child_ends.delivered(batch)
            if looks:
                self._next_look = time.monotonic() + LOOK_EVERY_SECONDS
                while await deliver_ended(self._store) >= BATCH:
                    pass
        except Exception as error:
            # The ends stay in the store; this or another worker finds them when it looks.
            self._emit(StoreFailed("delivering ended jobs", error, LOOK_EVERY_SECONDS))

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(max(0.0, self._next_look - time.monotonic())):
                    await self._settled.wait()
            except TimeoutError:
                pass
            await self.run_once()
