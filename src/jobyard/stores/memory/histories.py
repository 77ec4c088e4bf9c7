"""Histories of workflows: checkpoints, deliveries, and ends to deliver."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import msgspec

from jobyard.domain.history import Delivery, EndedJob, HistoryEntry, is_signal_scope
from jobyard.domain.instant import Instant
from jobyard.domain.job import State
from jobyard.ports.workflow_store import Checkpoint, Restart
from jobyard.stores.memory.connection import MemoryConnection
from jobyard.stores.memory.job_table import JobTable
from jobyard.stores.memory.stored_job import StoredJob


class MemoryHistories:
    def __init__(self, connection: MemoryConnection) -> None:
        self._connection = connection
        self._jobs = connection.jobs

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[tuple[HistoryEntry, ...] | None]:
        with self._connection.locked() as now:
            return [self._checkpoint(each, now) for each in checkpoints]

    def _checkpoint(self, checkpoint: Checkpoint, now: Instant) -> tuple[HistoryEntry, ...] | None:
        stored = self._jobs.held(checkpoint.key)
        if stored is None:
            return None
        stored.deaths = 0
        stored.new = msgspec.structs.replace(stored.new, is_workflow=True)
        if checkpoint.restart is not None:
            _restart(stored, checkpoint.restart)
        return tuple(write_entry(self._jobs, stored, entry, now) for entry in checkpoint.entries)

    async def history(self, job_id: str, scope: str = "", *, after: int = 0, limit: int = 1000) -> list[HistoryEntry]:
        with self._connection.locked():
            return self._page(job_id, scope, after, limit)

    async def histories(self, wanted: Sequence[tuple[str, str]], limit: int = 1000) -> list[list[HistoryEntry]]:
        with self._connection.locked():
            return [self._page(job_id, scope, 0, limit) for job_id, scope in wanted]

    def _page(self, job_id: str, scope: str, after: int, limit: int) -> list[HistoryEntry]:
        stored = self._jobs.get(job_id)
        if stored is None:
            return []
        entries = (entry for entry in stored.history.values() if entry.scope == scope and entry.number > after)
        return list(islice(entries, limit))

    async def deliver(self, deliveries: Sequence[Delivery], ended: Sequence[str] = ()) -> None:
        with self._connection.changing() as now:
            for each in deliveries:
                stored = self._jobs.get(each.job_id)
                if stored is not None and stored.state is not State.COMPLETED:
                    write_entry(self._jobs, stored, HistoryEntry(scope=each.scope, key=each.key, data=each.data), now)
                    wake(self._jobs, stored, now)
            self._forget(ended)

    async def ended_jobs(self, limit: int = 1000) -> list[EndedJob]:
        with self._connection.locked():
            return list(islice(self._jobs.ended.values(), limit))

    async def forget_ended(self, job_ids: Sequence[str]) -> None:
        with self._connection.locked():
            self._forget(job_ids)

    def _forget(self, job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            self._jobs.ended.pop(job_id, None)


def write_entry(table: JobTable, stored: StoredJob, entry: HistoryEntry, now: Instant) -> HistoryEntry:
    """Write the entry unless its scope and key have one; return the one that is stored."""
    known = stored.history.get((entry.scope, entry.key))
    if known is not None:
        return known
    table.last_entry += 1
    entry = msgspec.structs.replace(entry, number=table.last_entry, at=now)
    stored.history[entry.scope, entry.key] = entry
    return entry


def wake(table: JobTable, stored: StoredJob, now: Instant) -> bool:
    """Make a parked workflow due if one of its conditions holds."""
    if not stored.is_parked or not stored.may_wake():
        return False
    table.wait(stored, now, now)
    return True


def _restart(stored: StoredJob, restart: Restart) -> None:
    taken = set(restart.taken)
    stored.history = {
        position: entry
        for position, entry in stored.history.items()
        if is_signal_scope(position[0]) and position not in taken
    }
    stored.new = msgspec.structs.replace(stored.new, payload=restart.payload)
