"""Leases: renew, report, reclaim, adopt, signal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from jobyard.domain.history import MAX_SIGNALS, HistoryEntry, signal_scope
from jobyard.domain.instant import FOREVER, Instant, after
from jobyard.domain.job import NewJob, State, Step
from jobyard.domain.lease import UNACKNOWLEDGED_SECONDS, ExpiredLease, Lease, LeaseKey, adopted
from jobyard.domain.state import judge_expired
from jobyard.errors import JobNotFound
from jobyard.ports.job_store import Extended, Report
from jobyard.stores._shared.errors import cannot_signal, too_many_signals
from jobyard.stores._shared.limits import MAX_LOG_LINES
from jobyard.stores.sqlite.change import leave_line, load_status
from jobyard.stores.sqlite.codec import HAS_HISTORY, IS_WORKFLOW, job_row, json_list
from jobyard.stores.sqlite.connection import SqliteConnection
from jobyard.stores.sqlite.histories import wake
from jobyard.stores.sqlite.history_rows import add_flag, cancel_request, has_begun, take_signal, write_entries
from jobyard.stores.sqlite.insert import acquire_key, write_jobs
from jobyard.stores.sqlite.queue_line import enqueue
from jobyard.stores.sqlite.settle import EndedLease, apply
from jobyard.stores.sqlite.sql import SQL
from jobyard.stores.sqlite.transaction import Transaction, new_token


class SqliteLeases:
    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection

    async def extend(
        self, worker: str, keys: Sequence[LeaseKey], lease_seconds: float, *, unacknowledged: bool = False
    ) -> Extended:
        return await self._connection.write(
            lambda tx: extend(tx, worker, keys, lease_seconds, unacknowledged=unacknowledged), durable=False
        )

    async def report(self, reports: Sequence[Report]) -> tuple[LeaseKey, ...]:
        return await self._connection.write(lambda tx: report(tx, reports), durable=False)

    async def reclaim(
        self, limit: int = 1000, *, as_of: Instant | None = None, longest_seconds: float | None = None
    ) -> list[ExpiredLease]:
        now = self._connection.clock.now()
        judged_at = now if as_of is None else min(as_of, now)
        longest = FOREVER if longest_seconds is None else after(now, longest_seconds)
        # A read first, so that an idle fleet does not compete for the write lock.
        wanted = (judged_at, longest)
        if not await self._connection.read(lambda reader: reader.execute(SQL["has_lease_to_end"], wanted).fetchone()):
            return []
        return await self._connection.write(lambda tx: reclaim(tx, judged_at, limit, longest_seconds), durable=False)

    async def adopt(self, job: NewJob, worker: str, external_id: str, token: str | None = None) -> Lease:
        return await self._connection.write(lambda tx: adopt(tx, job, worker, external_id, token))

    async def signal(self, job_id: str, name: str, data: bytes = b"null", *, signal_id: str | None = None) -> bool:
        return await self._connection.write(lambda tx: signal(tx, job_id, name, data, signal_id or new_token()))


def extend(
    tx: Transaction, worker: str, keys: Sequence[LeaseKey], lease_seconds: float, *, unacknowledged: bool
) -> Extended:
    expires_at = after(tx.now, lease_seconds)
    if unacknowledged:
        window = round(UNACKNOWLEDGED_SECONDS * 1000)
        tx.cursor.execute(SQL["extend_worker"], (expires_at, worker, tx.now, window))
    execute = tx.cursor.execute
    lost = [key for key in keys if execute(SQL["extend_lease"], (expires_at, key.sequence, key.token)).rowcount == 0]
    return Extended(lost=tuple(lost), cancelled=cancel_requests_of(tx, worker))


def cancel_requests_of(tx: Transaction, worker: str) -> tuple[tuple[LeaseKey, str], ...]:
    """Return the leases of the worker whose jobs have a cancel request, with the reasons."""
    rows = tx.cursor.execute(SQL["list_cancel_requests"], (worker,)).fetchall()
    return tuple((LeaseKey(job_id, sequence, token), reason) for job_id, sequence, token, reason in rows)


def report(tx: Transaction, reports: Sequence[Report]) -> tuple[LeaseKey, ...]:
    refused: list[LeaseKey] = []
    for item in reports:
        sequence = item.key.sequence
        if tx.cursor.execute(SQL["check_lease"], (sequence, item.key.token)).fetchone() is None:
            refused.append(item.key)
            continue
        if item.progress is not None:
            _put_extra(tx, sequence, "progress", 0, msgspec.structs.replace(item.progress, at=tx.now))
        for line in item.lines:
            number = tx.cursor.execute(SQL["next_extra_number"], (sequence, "log")).fetchone()[0]
            _put_extra(tx, sequence, "log", number, msgspec.structs.replace(line, at=tx.now))
            if number > MAX_LOG_LINES:
                tx.cursor.execute(SQL["trim_extras"], (sequence, "log", number - MAX_LOG_LINES))
        if item.step is not None:
            _put_step(tx, sequence, item.step)
    return tuple(refused)


def _put_extra(tx: Transaction, sequence: int, what: str, number: int, value: Any) -> None:
    tx.cursor.execute(SQL["put_extra"], (sequence, what, number, msgspec.json.encode(value)))


def _put_step(tx: Transaction, sequence: int, step: Step) -> None:
    """Add the step, or replace the one of the same name in its position; the store's clock stamps it."""
    number = tx.cursor.execute(SQL["next_extra_number"], (sequence, "step")).fetchone()[0]
    started_at = tx.now
    for known_number, data in tx.cursor.execute(SQL["list_extras_of"], (sequence, "step")).fetchall():
        known = msgspec.json.decode(data, type=Step)
        if known.name == step.name:
            number = known_number
            if step.status != "running":
                started_at = known.started_at
    finished_at = None if step.status == "running" else tx.now
    stamped = msgspec.structs.replace(step, started_at=started_at, finished_at=finished_at)
    _put_extra(tx, sequence, "step", number, stamped)


def reclaim(tx: Transaction, judged_at: Instant, limit: int, longest_seconds: float | None) -> list[ExpiredLease]:
    """End leases that had expired by `judged_at`, at the latest when `reclaim` was called.

    One that expired later, while this transaction waited for the write lock, may still be renewed.
    """
    if longest_seconds is not None:
        longest = after(tx.now, longest_seconds)
        tx.cursor.execute(SQL["shorten_leases"], (longest, longest))
    ended: list[ExpiredLease] = []
    for row in tx.cursor.execute(SQL["list_expired_leases"], (min(judged_at, tx.now), limit)).fetchall():
        sequence, token, job_id, queue, group_name, worker, attempt, deaths, cancel, started_at, flags = row
        tx.cursor.execute(SQL["delete_leases"], (json_list([sequence]),))
        tx.add_running(tx.group(queue, group_name), -1)
        reason = None if cancel is None else cancel_request(tx, sequence, flags, cancel).ends_job
        ends_itself = bool(flags & IS_WORKFLOW) and has_begun(tx, sequence)
        transition = judge_expired(
            attempt=attempt, deaths=deaths, worker=worker, cancel_requested=reason, ends_itself=ends_itself
        )
        lease = EndedLease(job_id, sequence, queue, group_name, attempt, worker, started_at, flags, cancel)
        apply(tx, lease, transition)
        assert transition.error is not None
        group, error = group_name or None, msgspec.structs.replace(transition.error, at=tx.now)
        ended.append(ExpiredLease(job_id=job_id, queue=queue, group=group, token=token, worker=worker, error=error))
    if ended:
        tx.bump()
    return ended


def adopt(tx: Transaction, job: NewJob, worker: str, external_id: str, token: str | None) -> Lease:
    """Insert a job that already runs, whatever the limits: it must be counted as running."""
    if job.unique is not None:
        acquire_key(tx, job.queue, job.unique, job.id)
    group = tx.group(job.queue, job.group or "")
    tx.sequence += 1
    sequence, token = tx.sequence, token or new_token()
    row = job_row(job, sequence, tx.now, tx.now)
    write_jobs(tx, [row])
    if job.tags:
        tx.cursor.executemany(SQL["insert_tag"], [(tag, sequence) for tag in job.tags])
    if job.parent is not None:
        _put_extra(tx, sequence, "parent", 0, job.parent)
    lease = (sequence, token, FOREVER, worker, 1, tx.now, job.queue, group.name, row[-1])
    tx.cursor.execute(SQL["insert_lease"], lease)
    tx.cursor.execute(SQL["hand_off_lease"], (external_id, FOREVER, sequence, token))
    tx.add_running(group)
    tx.bump()
    return adopted(job, sequence, token)


def signal(tx: Transaction, job_id: str, name: str, data: bytes, signal_id: str) -> bool:
    status = load_status(tx, job_id)
    if status is None:
        raise JobNotFound.of(job_id)
    if status.state.is_final:
        raise cannot_signal(job_id, status.state)
    scope, sequence = signal_scope(name), status.sequence
    if tx.cursor.execute(SQL["load_entry"], (sequence, scope, signal_id)).fetchone() is not None:
        return False
    if tx.cursor.execute(SQL["count_signals"], (sequence, scope)).fetchone()[0] >= MAX_SIGNALS:
        raise too_many_signals(job_id, name)
    add_flag(tx, sequence, status.flags, HAS_HISTORY)
    write_entries(tx, [(sequence, HistoryEntry(scope=scope, key=signal_id, data=data))])
    if status.flags & IS_WORKFLOW:
        return wake(tx, status)
    if status.state is not State.PENDING or status.waiting_for != name:
        return False
    leave_line(tx, status)
    tx.cursor.execute(SQL["wake_job"], (tx.now, take_signal(tx, sequence, name), sequence))
    enqueue(tx, tx.group(status.queue, status.group), sequence, status.priority, tx.now)
    tx.bump()
    return True
