"""Exchange: settle and claim, and wait on the server when there is nothing to claim."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from jobyard.domain.state import Settlement
from jobyard.ports.job_store import Exchange
from jobyard.stores._shared.polling_claim import POLL_SECONDS
from jobyard.stores.redis.exchange import RedisExchange
from jobyard.stores.redis.notifier import POLL_UNSUBSCRIBED_SECONDS, RedisNotifier
from jobyard.stores.redis.waiting_claims import RedisWaitingClaim


class RedisClaim:
    def __init__(self, exchanges: RedisExchange, notifier: RedisNotifier) -> None:
        self._exchanges = exchanges
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
        run = self._exchanges.run
        if until is None or settlements or wanted <= 0:
            return await run(worker, settlements, queues, wanted, lease_seconds)
        subscriber = self._exchanges.client.pool.subscriber
        await subscriber.wait_until_ready(POLL_UNSUBSCRIBED_SECONDS)
        if subscriber.is_ready and not until.done():
            return await RedisWaitingClaim(self._exchanges, worker, queues, wanted, lease_seconds).wait(until)
        answer = await run(worker, (), queues, wanted, lease_seconds)
        if answer.leases or until.done():
            return answer
        has_work = await self._notifier.wait_for_work_until(queues, POLL_SECONDS, until)
        return await run(worker, (), queues, wanted, lease_seconds) if has_work else answer
