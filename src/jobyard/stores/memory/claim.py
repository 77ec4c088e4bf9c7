"""Exchange: settle what finished, then claim by `domain.admission`, one job at a time."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from functools import partial

from jobyard.domain.instant import after
from jobyard.domain.lease import Lease
from jobyard.domain.state import Settlement, apply_cancel_request
from jobyard.ports.job_store import Exchange
from jobyard.stores._shared.polling_claim import claim_by_polling
from jobyard.stores.memory.codec import lease_of
from jobyard.stores.memory.connection import MemoryConnection
from jobyard.stores.memory.leases import cancel_requests_of
from jobyard.stores.memory.notifier import MemoryNotifier
from jobyard.stores.memory.settle import apply
from jobyard.stores.memory.stored_job import ActiveLease


class MemoryClaim:
    def __init__(self, connection: MemoryConnection, notifier: MemoryNotifier) -> None:
        self._connection = connection
        self._notifier = notifier

    async def exchange(
        self,
        worker: str,
        settlements: Sequence[Settlement],
        queues: Sequence[str],
        wanted: int,
        lease_seconds: float,
        until: asyncio.Future[None] | None = None,
    ) -> Exchange:
        async def exchange() -> Exchange:
            return self._exchange(worker, settlements, queues, wanted, lease_seconds)

        if until is None or settlements:
            return await exchange()
        return await claim_by_polling(exchange, partial(self._notifier.wait_for_work, queues), until)

    def _exchange(
        self, worker: str, settlements: Sequence[Settlement], queues: Sequence[str], wanted: int, lease_seconds: float
    ) -> Exchange:
        jobs = self._connection.jobs
        with self._connection.changing() as now:
            refused = []
            for settlement in settlements:
                stored = jobs.held(settlement.key)
                if stored is None:
                    refused.append(settlement.key)
                else:
                    apply(jobs, stored, apply_cancel_request(settlement.transition, stored.cancel_request), now)
            token, expires_at = secrets.token_hex(8), after(now, lease_seconds)
            leases: list[Lease] = []
            while len(leases) < wanted and (stored := jobs.next_in_line(queues)) is not None:
                jobs.start(stored, ActiveLease(token, worker, expires_at), now)
                leases.append(lease_of(stored))
            return Exchange(
                refused=tuple(refused),
                leases=tuple(leases),
                cancelled=cancel_requests_of(jobs, worker),
                next_due_at=jobs.next_due_at(),
                revision=self._connection.revision + 1,
                now=now,
            )
