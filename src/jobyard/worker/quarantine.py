"""Isolation of jobs that are one worker death away from quarantine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Sequence

from jobyard.domain.events import StoreFailed
from jobyard.domain.lease import MAX_DEATHS, Lease, LeaseKey
from jobyard.domain.outcome import Snooze
from jobyard.domain.state import Settlement, judge
from jobyard.ports.observer import Emit

Settle = Callable[[Sequence[Settlement]], Awaitable[object]]
# A suspect that met another one here is due again after this long.
POSTPONE_SECONDS = 1.0
# A job with this many worker deaths is a suspect: the next one would quarantine it.
SUSPECT_DEATHS = MAX_DEATHS - 1


class SuspectIsolation:
    """Runs suspects one at a time, so that only the job that kills the worker is quarantined.

    The other suspects are returned to the store before that one starts, because it may kill this process at once.
    """

    def __init__(self, settle: Settle, running: Container[LeaseKey | None], emit: Emit) -> None:
        self._settle = settle
        self._running = running
        self._emit = emit
        self._lock = asyncio.Lock()
        self._suspect: LeaseKey | None = None  # the latest that was started here

    async def start(self, leases: Sequence[Lease], start: Callable[[Sequence[Lease]], Awaitable[None]]) -> None:
        """Start the leases except the suspects that have to wait."""
        async with self._lock:
            await start(await self._postpone(leases))

    async def _postpone(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        suspects = [lease for lease in leases if lease.deaths >= SUSPECT_DEATHS]
        postponed = suspects if self._suspect in self._running else suspects[1:]
        if postponed is not suspects:
            self._suspect = suspects[0].key
        if postponed:
            later = Snooze(POSTPONE_SECONDS)
            try:
                await self._settle([Settlement(lease.key, judge(lease, later)) for lease in postponed])
            except Exception as error:
                # The store is unavailable: running them together is better than letting their leases expire.
                self._emit(StoreFailed("postponing suspect jobs", error, 0.0))
                return leases
        return [lease for lease in leases if lease not in postponed]
