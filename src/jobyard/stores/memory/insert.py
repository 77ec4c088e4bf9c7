"""Insert: unique keys and back-pressure, checked before anything is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob
from jobyard.errors import QueueFull, duplicate_job_id
from jobyard.ports.job_store import Inserted
from jobyard.stores._shared.errors import insert_without_transaction
from jobyard.stores.memory.connection import MemoryConnection
from jobyard.stores.memory.job_table import JobTable


class MemoryInsert:
    def __init__(self, connection: MemoryConnection) -> None:
        self._connection = connection

    async def insert(self, jobs: Sequence[NewJob], transaction: Any = None) -> list[Inserted]:
        if transaction is not None:
            raise insert_without_transaction("memory")
        with self._connection.changing() as now:
            return insert_jobs(self._connection.jobs, jobs, now)


def insert_jobs(table: JobTable, jobs: Sequence[NewJob], now: Instant) -> list[Inserted]:
    holders = _holders(table, jobs, now)
    _require_room(table, [job for job, holder in zip(jobs, holders, strict=True) if holder is None])
    return [
        Inserted(holder, False, 0) if holder is not None else Inserted(job.id, True, table.add(job, now).sequence)
        for job, holder in zip(jobs, holders, strict=True)
    ]


def _holders(table: JobTable, jobs: Sequence[NewJob], now: Instant) -> list[str | None]:
    """Return, for each job, the holder of its unique key: a stored job, or an earlier one of the same call."""
    holders: list[str | None] = []
    ids: set[str] = set()
    keys: dict[tuple[str, str], str] = {}
    for job in jobs:
        holder = table.unique_keys.holder(job, now)
        if holder is None and job.unique is not None:
            holder = keys.get((job.queue, job.unique.key))
        holders.append(holder)
        if holder is not None:
            continue
        if job.id in table or job.id in ids:
            if job.parent is None:
                raise duplicate_job_id(job.id)
            holders[-1] = job.id
            continue
        ids.add(job.id)
        if job.unique is not None:
            keys[job.queue, job.unique.key] = job.id
    return holders


def _require_room(table: JobTable, jobs: Sequence[NewJob]) -> None:
    added: Counter[tuple[str, str | None]] = Counter((job.queue, None) for job in jobs)
    added.update((job.queue, job.group) for job in jobs if job.group is not None)
    for (queue, group), count in added.items():
        limit = exceeded_limit(table, queue, group, count)
        if limit is not None:
            raise QueueFull.over(limit, queue, group)


def exceeded_limit(table: JobTable, queue: str, group: str | None, added: int) -> int | None:
    """Return the limit of waiting jobs, of the queue or of its group, that the added jobs would exceed."""
    line = table.lines.get(queue)
    if line is None:
        return None
    if group is None:
        limit, pending = line.settings.max_waiting, line.due + line.delayed
    else:
        limit = line.settings.max_waiting_per_group
        pending = line.groups[group].pending if group in line.groups else 0
    return limit if limit is not None and pending + added > limit else None
