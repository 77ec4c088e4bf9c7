"""Checkpoints of all workflows of a worker, written together."""

from __future__ import annotations

import asyncio

from jobyard.domain.history import HistoryEntry
from jobyard.domain.lease import LeaseKey
from jobyard.errors import LeaseLost, StoreError
from jobyard.ports.workflow_store import Checkpoint, Restart, WorkflowStore

# Entries written in one call; a larger call would hold up the store for others.
MAX_BATCH = 500
# While the store is away a checkpoint waits, because an outage must not decide how a job ends while its lease holds.
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.1, 2.0


class CheckpointBatcher:
    """The first checkpoint is written at once; those that come while it is written travel together."""

    def __init__(self, store: WorkflowStore) -> None:
        self._store = store
        self._waiting: list[tuple[Checkpoint, asyncio.Future[tuple[HistoryEntry, ...]]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def write(
        self, key: LeaseKey, entries: tuple[HistoryEntry, ...], restart: Restart | None = None
    ) -> tuple[HistoryEntry, ...]:
        """The entries as they are stored. Raises LeaseLost."""
        future: asyncio.Future[tuple[HistoryEntry, ...]] = asyncio.get_running_loop().create_future()
        self._waiting.append((Checkpoint(key=key, entries=entries, restart=restart), future))
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write_all())
        return await future

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
                await self._write(batch)
        finally:
            self._writer = None

    async def _write(self, batch: list[tuple[Checkpoint, asyncio.Future[tuple[HistoryEntry, ...]]]]) -> None:
        delay = FIRST_RETRY_SECONDS
        while batch := [each for each in batch if not each[1].done()]:  # an attempt that lost its lease waits no more
            try:
                recorded = await self._store.checkpoint([checkpoint for checkpoint, _ in batch])
            except StoreError:
                await asyncio.sleep(delay)
                delay = min(LAST_RETRY_SECONDS, 2 * delay)
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
            else:
                for (checkpoint, future), entries in zip(batch, recorded, strict=True):
                    if future.done():
                        continue
                    if entries is None:
                        future.set_exception(
                            LeaseLost(f"Cannot record in job {checkpoint.key.job_id}: its lease was lost.")
                        )
                    else:
                        future.set_result(entries)
                return
