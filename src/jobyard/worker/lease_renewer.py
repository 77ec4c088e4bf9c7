"""Renewal of the leases that a worker holds."""

from __future__ import annotations

from jobyard.domain.lease import renewal_interval
from jobyard.ports.store import Store
from jobyard.worker.claimer import Claimer
from jobyard.worker.loop_monitor import EventLoopMonitor

# Held leases are renewed at least this often: it is also how a busy worker learns that a job was cancelled.
RENEW_AT_LEAST_EVERY_SECONDS = 1.0


class LeaseRenewer:
    def __init__(self, claimer: Claimer, worker_id: str, lease_seconds: float, monitor: EventLoopMonitor) -> None:
        self.interval = min(RENEW_AT_LEAST_EVERY_SECONDS, renewal_interval(lease_seconds))
        self._claimer = claimer
        self._worker_id = worker_id
        self.lease_seconds = lease_seconds
        self._monitor = monitor

    async def renew(self, store: Store) -> None:
        # While the event loop is blocked, the claimer cannot know of leases that have arrived meanwhile.
        unacknowledged = self._claimer.has_exchange_in_flight() or self._monitor.is_blocked
        held = self._claimer.held_keys()
        if not held and not unacknowledged:
            return
        extended = await store.extend(self._worker_id, list(held), self.lease_seconds, unacknowledged=unacknowledged)
        for key in extended.lost:
            self._monitor.loop.call_soon_threadsafe(self._claimer.lose, key)
        for key, reason in extended.cancelled:
            self._monitor.loop.call_soon_threadsafe(self._claimer.cancel, key, reason)
