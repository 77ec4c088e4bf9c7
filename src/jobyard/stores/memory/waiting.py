"""The verbs that may wait: for something to claim, for work, and for a job's end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from jobyard.domain.job import Job
from jobyard.domain.state import Settlement
from jobyard.ports.job_store import Exchange
from jobyard.stores._shared.polling_claim import claim_by_polling
from jobyard.stores.memory.hot_path import HotPathVerbs

# Below this a timer that fires a hair early would spin.
SHORTEST_NAP_SECONDS = 0.001


class WaitingVerbs(HotPathVerbs):
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
            return self._exchange_now(worker, settlements, queues, wanted, lease_seconds)

        if until is None or settlements:
            return await exchange()
        return await claim_by_polling(exchange, partial(self.wait_for_work, queues), until)

    async def wait_for_work(self, queues: Sequence[str], timeout_seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        asked_before = self._cancels_asked
        while True:
            with self._looking() as now:
                if self._cancels_asked != asked_before or self._next(queues) is not None:
                    return True
                remaining = deadline - loop.time()
                if remaining <= 0:
                    return False
                due_at = self._shelf.next_due_at()
                rung = self._bell.add()
            nap = remaining if due_at is None else min(remaining, (due_at - now) / 1000)
            await self._nap(rung, nap)

    async def wait_for_end(self, job_id: str, timeout_seconds: float) -> Job | None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        while True:
            with self._looking():
                entry = self._require(job_id)
                if entry.state.is_final:
                    return entry.job()
                remaining = deadline - loop.time()
                if remaining <= 0:
                    return None
                rung = self._bell.add()
            await self._nap(rung, remaining)

    async def _nap(self, rung: asyncio.Future[None], seconds: float) -> None:
        try:
            await asyncio.wait([rung], timeout=max(seconds, SHORTEST_NAP_SECONDS))
        finally:
            self._bell.discard(rung)
