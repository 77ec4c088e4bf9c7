"""The Redis store, composed of one part per area."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from jobyard.ports.clock import Clock
from jobyard.ports.store import Finding, Migration, Store
from jobyard.stores._shared.clock import AdjustableClock
from jobyard.stores._shared.composed_store import ComposedStore
from jobyard.stores.redis.address import parse_address
from jobyard.stores.redis.audit import audit, repair
from jobyard.stores.redis.claim import RedisClaim
from jobyard.stores.redis.client import RedisClient
from jobyard.stores.redis.diagnostics import findings, migrations, prepare, risks
from jobyard.stores.redis.exchange import RedisExchange
from jobyard.stores.redis.histories import RedisHistories
from jobyard.stores.redis.insert import RedisInsert
from jobyard.stores.redis.jobs import RedisJobs
from jobyard.stores.redis.leases import RedisLeases
from jobyard.stores.redis.notifier import RedisNotifier
from jobyard.stores.redis.queues import RedisQueues
from jobyard.stores.redis.records import RedisRecords
from jobyard.stores.redis.schedules import RedisSchedules
from jobyard.stores.redis.settle import LeaseQueues, RedisSettle

T = TypeVar("T")


class RedisStore(ComposedStore):
    """`connections` is the maximum per event loop; `prefix` separates several yards on one server."""

    has_transactions = False
    is_remote = True

    def __init__(self, url: str, clock: Clock | None = None, *, connections: int = 16, prefix: str = "jobyard") -> None:
        address = parse_address(url)
        self.url = address.url
        self.client = client = RedisClient(address, prefix, connections, clock)
        self._unsubscribe: Callable[[], None] | None = None
        lease_queues = LeaseQueues()
        notifier = RedisNotifier(client)
        super().__init__(
            RedisLeases(client, lease_queues),
            notifier,
            RedisJobs(client, notifier),
            RedisQueues(client),
            RedisSchedules(client),
            RedisRecords(client),
            RedisHistories(client, lease_queues),
        )
        self.insert = RedisInsert(client).insert
        self.exchange = RedisClaim(RedisExchange(client, lease_queues), notifier).exchange
        self.settle = RedisSettle().settle

    async def open(self) -> None:
        client = self.client
        client.process.opened()
        is_first, client.is_open = not client.is_open, True
        try:
            await prepare(client)
        except BaseException:
            if is_first:
                await self.close()
            raise
        if self._unsubscribe is None and isinstance(client.clock, AdjustableClock):
            self._unsubscribe = client.clock.subscribe(lambda: client.on_each_loop(lambda pool: pool.wake_all()))

    async def close(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        await asyncio.shield(self.client.close())

    def for_event_loop(self) -> Store:
        return self

    async def audit(self) -> list[str]:
        return await audit(self.client)

    async def repair(self) -> list[str]:
        return await repair(self.client)

    async def diagnose(self) -> list[Finding]:
        return await self._with_client(findings)

    async def risks(self) -> list[Finding]:
        return await self._with_client(risks)

    async def migrations(self) -> list[Migration]:
        return await self._with_client(migrations)

    async def _with_client(self, work: Callable[[RedisClient], Awaitable[T]]) -> T:
        """Use a client of its own while the store is not open."""
        client = self.client
        if client.is_open:
            return await work(client)
        temporary = RedisClient(client.address, client.prefix, 1, client.clock)
        temporary.is_open = True
        try:
            return await work(temporary)
        finally:
            await temporary.close()
