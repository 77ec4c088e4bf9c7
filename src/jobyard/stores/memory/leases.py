"""Leases: renew, report, reclaim, adopt, signal."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import msgspec

from jobyard.domain.history import MAX_SIGNALS, HistoryEntry, signal_scope
from jobyard.domain.instant import FOREVER, Instant, after
from jobyard.domain.job import NewJob
from jobyard.domain.lease import UNACKNOWLEDGED_SECONDS, ExpiredLease, Lease, LeaseKey, is_expired
from jobyard.domain.state import judge_expired
from jobyard.errors import duplicate_job_id
from jobyard.ports.job_store import Extended, Report
from jobyard.stores._shared.errors import cannot_signal, too_many_signals
from jobyard.stores.memory.codec import lease_of
from jobyard.stores.memory.connection import MemoryConnection
from jobyard.stores.memory.histories import wake, write_entry
from jobyard.stores.memory.job_table import JobTable
from jobyard.stores.memory.settle import apply, take_signal
from jobyard.stores.memory.stored_job import ActiveLease, StoredJob


class MemoryLeases:
    def __init__(self, connection: MemoryConnection) -> None:
        self._connection = connection
        self._jobs = connection.jobs

    async def extend(
        self, worker: str, keys: Sequence[LeaseKey], lease_seconds: float, *, unacknowledged: bool = False
    ) -> Extended:
        with self._connection.locked() as now:
            lost: list[LeaseKey] = []
            if unacknowledged:
                self._extend_unacknowledged(worker, now, after(now, lease_seconds))
            for key in keys:
                stored = self._jobs.held(key)
                if stored is None or stored.lease is None:
                    lost.append(key)
                # A handed-off job is ended by its reconciler: a late renewal must not give its lease an expiry again.
                elif stored.lease.expires_at != FOREVER:
                    stored.lease.expires_at = after(now, lease_seconds)
            return Extended(lost=tuple(lost), cancelled=cancel_requests_of(self._jobs, worker))

    def _extend_unacknowledged(self, worker: str, now: Instant, expires_at: Instant) -> None:
        for stored in self._jobs.running.values():
            is_recent = abs(now - (stored.started_at or 0)) < UNACKNOWLEDGED_SECONDS * 1000
            if stored.worker == worker and is_recent and stored.lease and stored.lease.expires_at != FOREVER:
                stored.lease.expires_at = expires_at

    async def report(self, reports: Sequence[Report]) -> tuple[LeaseKey, ...]:
        with self._connection.locked() as now:
            refused: list[LeaseKey] = []
            for report in reports:
                stored = self._jobs.held(report.key)
                if stored is None:
                    refused.append(report.key)
                    continue
                if report.progress is not None:
                    stored.progress = msgspec.structs.replace(report.progress, at=now)
                stored.log.extend(msgspec.structs.replace(line, at=now) for line in report.lines)
                if report.step is not None:
                    stored.record(report.step, now)
            return tuple(refused)

    async def reclaim(
        self, limit: int = 1000, *, as_of: Instant | None = None, longest_seconds: float | None = None
    ) -> list[ExpiredLease]:
        with self._connection.changing() as now:
            if longest_seconds is not None:
                self._shorten(after(now, longest_seconds))
            judged_at = now if as_of is None else min(as_of, now)
            expired = sorted(
                (stored.lease.expires_at, stored.sequence)
                for stored in self._jobs.running.values()
                if stored.lease is not None and is_expired(stored.lease.expires_at, judged_at)
            )
            return [_end(self._jobs, self._jobs.at(sequence), now) for _, sequence in expired[:limit]]

    def _shorten(self, longest: Instant) -> None:
        for stored in self._jobs.running.values():
            if stored.lease is not None and longest < stored.lease.expires_at != FOREVER:
                stored.lease.expires_at = longest

    async def adopt(self, job: NewJob, worker: str, external_id: str, token: str | None = None) -> Lease:
        with self._connection.changing() as now:
            if job.id in self._jobs:
                raise duplicate_job_id(job.id)
            stored = self._jobs.add_running(job, ActiveLease(token or secrets.token_hex(8), worker, FOREVER), now)
            stored.external_id = external_id
            return lease_of(stored)

    async def signal(self, job_id: str, name: str, data: bytes = b"null", *, signal_id: str | None = None) -> bool:
        with self._connection.changing() as now:
            stored = self._jobs.require(job_id)
            if stored.state.is_final:
                raise cannot_signal(job_id, stored.state)
            scope, key = signal_scope(name), signal_id or secrets.token_hex(8)
            if (scope, key) in stored.history:
                return False
            if sum(each[0] == scope and each not in stored.taken for each in stored.history) >= MAX_SIGNALS:
                raise too_many_signals(job_id, name)
            write_entry(self._jobs, stored, HistoryEntry(scope=scope, key=key, data=data), now)
            if stored.new.is_workflow:
                return wake(self._jobs, stored, now)
            if not (stored.is_parked and stored.waiting_for == name):
                return False
            stored.signal = take_signal(stored, name)
            self._jobs.wait(stored, now, now)
            return True


def cancel_requests_of(table: JobTable, worker: str) -> tuple[tuple[LeaseKey, str], ...]:
    """Return the leases of the worker whose jobs have a cancel request, with the reasons."""
    return tuple(
        (stored.lease_key(), stored.lease.cancel_requested)
        for _, stored in sorted(table.running.items())
        if stored.lease is not None and stored.lease.cancel_requested is not None and stored.worker == worker
    )


def _end(table: JobTable, stored: StoredJob, now: Instant) -> ExpiredLease:
    lease = stored.lease
    assert lease is not None
    transition = judge_expired(
        attempt=stored.attempt,
        deaths=stored.deaths,
        worker=lease.worker,
        cancel_requested=stored.cancel_request.ends_job,
        ends_itself=stored.ends_itself,
    )
    error = apply(table, stored, transition, now)
    assert error is not None
    job, token, worker = stored.new, lease.token, lease.worker
    return ExpiredLease(job_id=job.id, queue=job.queue, group=job.group, token=token, worker=worker, error=error)
