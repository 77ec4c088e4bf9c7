"""The verbs of the hot path that answer at once: insert, extend, report, reclaim, adopt, signal."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from jobyard.domain.admission import next_in_turn
from jobyard.domain.instant import FOREVER, Instant, after
from jobyard.domain.job import NewJob
from jobyard.domain.lease import UNACKNOWLEDGED_SECONDS, Ended, Lease, LeaseKey, is_expired
from jobyard.domain.state import Settlement, bury, heed
from jobyard.errors import NotPossible
from jobyard.ports.job_store import Exchange, Extended, Inserted, Report
from jobyard.stores.memory.desk import Desk
from jobyard.stores.memory.entrance import enter, require_unknown
from jobyard.stores.memory.entry import Entry, Hold
from jobyard.stores.memory.settle import apply


class HotPathVerbs(Desk):
    async def insert(self, jobs: Sequence[NewJob], transaction: Any = None) -> list[Inserted]:
        if transaction is not None:
            raise NotPossible("The memory store has no database transactions to join; insert without one.")
        with self._changing() as now:
            return enter(self._shelf, jobs, now)

    async def settle(self, settlement: Settlement, transaction: Any) -> None:
        raise NotPossible("The memory store has no database transactions to join; return the result instead.")

    def _exchange_now(
        self, worker: str, settlements: Sequence[Settlement], queues: Sequence[str], wanted: int, lease_seconds: float
    ) -> Exchange:
        with self._changing() as now:
            refused = tuple(one.key for one in settlements if not self._settle(one, now))
            token, expires_at = secrets.token_hex(8), after(now, lease_seconds)
            leases: list[Lease] = []
            while len(leases) < wanted and (entry := self._next(queues)) is not None:
                self._shelf.start(entry, Hold(token, worker, expires_at), now)
                leases.append(entry.lease())
            return Exchange(
                refused=refused,
                leases=tuple(leases),
                cancelled=self._asked_to_stop(worker),
                next_due_at=self._shelf.next_due_at(),
                revision=self._revision + 1,
                now=now,
            )

    async def extend(
        self, worker: str, keys: Sequence[LeaseKey], lease_seconds: float, *, unacknowledged: bool = False
    ) -> Extended:
        with self._looking() as now:
            lost: list[LeaseKey] = []
            if unacknowledged:
                self._renew_unseen_of(worker, now, after(now, lease_seconds))
            for key in keys:
                entry = self._held(key)
                if entry is None or entry.hold is None:
                    lost.append(key)
                # A handed-off job is judged by its reconciler: a late renewal must not give its lease an end again.
                elif entry.hold.expires_at != FOREVER:
                    entry.hold.expires_at = after(now, lease_seconds)
            return Extended(lost=tuple(lost), cancelled=self._asked_to_stop(worker))

    async def report(self, reports: Sequence[Report]) -> tuple[LeaseKey, ...]:
        with self._looking() as now:
            refused: list[LeaseKey] = []
            for report in reports:
                entry = self._held(report.key)
                if entry is None:
                    refused.append(report.key)
                    continue
                if report.progress is not None:
                    entry.progress = msgspec.structs.replace(report.progress, at=now)
                entry.log.extend(msgspec.structs.replace(line, at=now) for line in report.lines)
                if report.step is not None:
                    entry.record(report.step, now)
            return tuple(refused)

    async def reclaim(self, limit: int = 1000) -> list[Ended]:
        with self._changing() as now:
            expired = sorted(
                (entry.hold.expires_at, entry.sequence)
                for entry in self._shelf.running.values()
                if entry.hold is not None and is_expired(entry.hold.expires_at, now)
            )
            return [self._bury(self._shelf.at(sequence), now) for _, sequence in expired[:limit]]

    async def adopt(self, job: NewJob, worker: str, external_id: str) -> Lease:
        with self._changing() as now:
            require_unknown(self._shelf, job.id)
            entry = self._shelf.add_running(job, Hold(secrets.token_hex(8), worker, FOREVER), now)
            entry.external_id = external_id
            return entry.lease()

    async def signal(self, job_id: str, name: str, data: bytes = b"null") -> bool:
        with self._changing() as now:
            entry = self._require(job_id)
            if entry.state.is_final:
                raise NotPossible(f"Job {job_id} is {entry.state}; only a job that has not ended can be signalled.")
            if not (entry.is_parked and entry.waiting_for == name):
                entry.remembered[name] = data
                return False
            entry.signal = data
            self._shelf.wait(entry, now, now)
            return True

    def _held(self, key: LeaseKey) -> Entry | None:
        entry = self._shelf.get(key.job_id)
        return entry if entry is not None and entry.is_held_by(key) else None

    def _settle(self, settlement: Settlement, now: Instant) -> bool:
        entry = self._held(settlement.key)
        if entry is None:
            return False
        apply(self._shelf, entry, heed(settlement.transition, entry.cancel_requested), now)
        return True

    def _next(self, queues: Sequence[str]) -> Entry | None:
        """The job whose turn it is; no queue named means any, as for a worker that takes all of them."""
        turn = next_in_turn(line.queue for line in self._shelf.lines if not queues or line.queue.name in queues)
        if turn is None:
            return None
        queue, group = turn
        places = self._shelf.lines.of(queue.name).groups[group.name].places
        return self._shelf.at(places[0][1])

    def _bury(self, entry: Entry, now: Instant) -> Ended:
        hold = entry.hold
        assert hold is not None
        transition = bury(
            attempt=entry.attempt, deaths=entry.deaths, worker=hold.worker, cancel_requested=entry.cancel_requested
        )
        error = apply(self._shelf, entry, transition, now)
        assert error is not None
        return Ended(
            job_id=entry.id,
            queue=entry.new.queue,
            group=entry.new.group,
            token=hold.token,
            worker=hold.worker,
            error=error,
        )

    def _renew_unseen_of(self, worker: str, now: Instant, expires_at: Instant) -> None:
        for entry in self._shelf.running.values():
            is_young = after(entry.started_at or 0, UNACKNOWLEDGED_SECONDS) > now
            if entry.worker == worker and is_young and entry.hold is not None and entry.hold.expires_at != FOREVER:
                entry.hold.expires_at = expires_at

    def _asked_to_stop(self, worker: str) -> tuple[tuple[LeaseKey, str], ...]:
        return tuple(
            (entry.key(), entry.cancel_requested)
            for _, entry in sorted(self._shelf.running.items())
            if entry.cancel_requested is not None and entry.worker == worker
        )
