"""Jobs: get, find, change, prune."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from jobyard.domain.instant import Instant, after
from jobyard.domain.job import Job, State, UniqueScope
from jobyard.domain.text import without_nul
from jobyard.ports.admin_store import Action, Changed, Filter, Page
from jobyard.stores._shared.cursor import decode_cursor
from jobyard.stores._shared.limits import DEFAULT_CANCEL_REASON
from jobyard.stores.memory.codec import job_of, summary_of
from jobyard.stores.memory.connection import MemoryConnection
from jobyard.stores.memory.job_table import JobTable
from jobyard.stores.memory.queue_line import QueueLine
from jobyard.stores.memory.stored_job import StoredJob

# Bounds on the cost of one page: rows visited, and payload bytes searched.
MAX_ROWS_PER_PAGE = 10_000
MAX_BYTES_PER_PAGE = 16 << 20


class MemoryJobs:
    def __init__(self, connection: MemoryConnection) -> None:
        self._connection = connection
        self._jobs = connection.jobs

    async def get(self, job_id: str) -> Job | None:
        with self._connection.locked():
            stored = self._jobs.get(job_id)
            return None if stored is None else job_of(stored)

    async def find(self, where: Filter, limit: int = 50, cursor: str | None = None) -> Page:
        before = None if cursor is None else decode_cursor(cursor)
        with self._connection.locked():
            rows = self._jobs.matching(where)
            if before is not None:
                rows = (stored for stored in rows if stored.sequence < before)
            jobs: list[Job] = []
            searched = 0
            for visited, stored in enumerate(rows, start=1):
                if where.ends_at(stored.created_at):
                    break
                if _matches(where, stored):
                    searched += len(stored.new.payload) if where.searches else 0
                    if where.matches(stored.created_at, stored.new.payload):
                        jobs.append(summary_of(stored))
                if len(jobs) >= limit or visited >= MAX_ROWS_PER_PAGE or searched >= MAX_BYTES_PER_PAGE:
                    has_more = next(rows, None) is not None
                    return Page(tuple(jobs), str(stored.sequence) if has_more else None)
            return Page(tuple(jobs), None)

    async def change(
        self,
        action: Action,
        job_ids: Sequence[str],
        *,
        reason: str = "",
        priority: int = 0,
        unless_requested: bool = False,
    ) -> Changed:
        with self._connection.changing() as now:
            changed: list[str] = []
            unchanged: list[str] = []
            for stored in filter(None, map(self._jobs.get, job_ids)):
                is_requested = action is Action.CANCEL and unless_requested and stored.cancel_requested is not None
                was_possible = not is_requested and _change(
                    self._jobs, action, stored, now, reason=reason, priority=priority
                )
                (changed if was_possible else unchanged).append(stored.id)
            if action is Action.CANCEL and changed:
                self._connection.cancel_requests += 1
            return Changed(tuple(changed), tuple(unchanged))

    async def prune(self, limit: int = 1000) -> int:
        with self._connection.changing() as now:
            removed = 0
            for line in self._jobs.lines:
                removed += self._prune_line(line, now, limit - removed)
            return removed

    def _prune_line(self, line: QueueLine, now: Instant, limit: int) -> int:
        settings, removed = line.settings, 0
        for bucket, keep, seconds in (
            (line.completed, settings.keep_completed, settings.keep_completed_seconds),
            (line.failed, settings.keep_failed, settings.keep_failed_seconds),
        ):
            last, excess = after(now, -seconds), len(line.completed) + len(line.failed) - settings.keep_at_most
            for stored in map(self._jobs.at, list(islice(bucket, max(0, len(bucket) - keep)))):
                is_old = (stored.finished_at or 0) <= last
                if removed >= limit or not (is_old or excess > 0):
                    break
                if stored.id in self._connection.awaited or self._jobs.must_stay(stored):
                    continue
                self._jobs.remove(stored)
                removed, excess = removed + 1, excess - 1
                if not is_old:
                    line.removed_by_cap, line.removed_by_cap_at = line.removed_by_cap + 1, now
        return removed


def _matches(where: Filter, stored: StoredJob) -> bool:
    new = stored.new
    return (
        (where.ids is None or stored.id in where.ids)
        and (where.queue is None or new.queue == where.queue)
        and (where.group is None or new.group == where.group)
        and (where.kind is None or new.kind == where.kind)
        and (where.states is None or stored.state in where.states)
        and (where.tag is None or where.tag in new.tags)
        and (where.unique_key is None or (new.unique is not None and new.unique.key == where.unique_key))
    )


def _change(table: JobTable, action: Action, stored: StoredJob, now: Instant, *, reason: str, priority: int) -> bool:
    """Apply the action; return False if the state of the job does not allow it."""
    match action:
        case Action.CANCEL:
            return _cancel(table, stored, now, without_nul(reason or DEFAULT_CANCEL_REASON))
        case Action.RETRY:
            return _retry(table, stored, now)
        case Action.DELETE:
            if stored.state is State.RUNNING or (stored.ends_itself and not stored.state.is_final):
                return False
            if table.must_stay(stored):
                return False
            table.remove(stored)
            return True
        case Action.PRIORITISE:
            if stored.state is not State.PENDING:
                return False
            table.prioritise(stored, priority)
            return True
        case Action.RUN_NOW:
            if stored.state is not State.PENDING or stored.is_in_line or stored.is_parked:
                return False
            table.wait(stored, now, now)
            return True


def _cancel(table: JobTable, stored: StoredJob, now: Instant, reason: str) -> bool:
    if stored.lease is not None:
        stored.lease.cancel_requested = reason
        return True
    if stored.state is State.PENDING and stored.ends_itself and stored.cancel_carried is None:
        stored.cancel_carried = reason
        if not stored.is_in_line:
            table.wait(stored, now, now)
        return True
    if stored.state is State.PENDING:
        stored.reason = reason
        table.finish(stored, State.CANCELLED, now)
        return True
    return False


def _retry(table: JobTable, stored: StoredJob, now: Instant) -> bool:
    if stored.state not in (State.FAILED, State.TIMEOUT, State.CANCELLED):
        return False
    if stored.new.unique is not None and stored.new.unique.scope is UniqueScope.ACTIVE:
        if table.unique_keys.holder(stored.new, now) not in (None, stored.id):
            return False
        table.unique_keys.acquire(stored.new, now)
    stored.used = stored.deaths = 0
    stored.result = stored.reason = None
    table.wait(stored, now, now)
    return True
