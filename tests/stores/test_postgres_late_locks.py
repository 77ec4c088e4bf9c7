"""Calls that wait for a lock: a lease lasts from when it is written, not from when the call began."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from tests.conformance.support import new
from tests.stores.postgres_support import connection, schema, store, until_blocking
from tests.support import eventually

from jobyard.domain.instant import Instant
from jobyard.domain.job import QueueSettings
from jobyard.domain.lease import Lease
from jobyard.stores.postgres import PostgresStore

__all__ = ["connection", "schema", "store"]

T = TypeVar("T")
LEASE_SECONDS = 0.5


class LockedQueue:
    """Locks the queue's row until a call has waited for it for longer than a lease."""

    def __init__(self, store: PostgresStore, schema: str, connection: Any) -> None:
        self._store = store
        self._schema = schema
        self._connection = connection

    async def keep_waiting(self, call: Coroutine[Any, Any, T]) -> tuple[T, Instant]:
        """The response, and when the lock was released."""
        async with self._connection.transaction():
            await self._connection.execute(f"SELECT FROM {self._schema}.jobyard_queue FOR NO KEY UPDATE")
            waiting = asyncio.create_task(call)
            await until_blocking(self._connection)
            blocked_at = await self._store.now()

            async def is_late() -> bool:
                return await self._store.now() - blocked_at > LEASE_SECONDS * 1000

            await eventually(is_late)
            released_at = await self._store.now()
        return await asyncio.wait_for(waiting, 60), released_at

    async def end_of(self, lease: Lease) -> Instant:
        statement = f"SELECT expires_at FROM {self._schema}.jobyard_lease WHERE token = $1"
        end: Instant = await self._connection.fetchval(statement, lease.token)
        return end


@pytest.fixture
def queue(store: PostgresStore, schema: str, connection: Any) -> LockedQueue:
    return LockedQueue(store, schema, connection)


async def claim(store: PostgresStore, lease_seconds: float = LEASE_SECONDS) -> Lease:
    await store.insert([new()])
    [lease] = (await store.exchange("w", [], ["default"], 1, lease_seconds)).leases
    return lease


@pytest.mark.parametrize("unacknowledged", [False, True])
async def test_a_renewal(store: PostgresStore, queue: LockedQueue, unacknowledged: bool) -> None:
    lease = await claim(store, 60.0)
    keys = [] if unacknowledged else [lease.key]
    renewal = store.extend("w", keys, LEASE_SECONDS, unacknowledged=unacknowledged)
    extended, released_at = await queue.keep_waiting(renewal)
    assert extended.lost == ()
    assert await queue.end_of(lease) >= released_at + LEASE_SECONDS * 1000


async def test_a_claim(store: PostgresStore, queue: LockedQueue) -> None:
    await store.insert([new()])
    response, released_at = await queue.keep_waiting(store.exchange("w", [], ["default"], 1, LEASE_SECONDS))
    [lease] = response.leases
    assert await queue.end_of(lease) >= released_at + LEASE_SECONDS * 1000


async def test_a_job_that_goes_straight_to_a_waiting_claim(store: PostgresStore, queue: LockedQueue) -> None:
    await store.configure("default", QueueSettings())
    until = asyncio.get_running_loop().create_future()
    claiming = asyncio.create_task(store.exchange("w", [], ["default"], 1, LEASE_SECONDS, until))
    await eventually(lambda: len(store.waiting_claims) == 1)
    _, released_at = await queue.keep_waiting(store.insert([new()]))
    [lease] = (await asyncio.wait_for(claiming, 60)).leases
    assert await queue.end_of(lease) >= released_at + LEASE_SECONDS * 1000


async def test_a_lease_that_is_shortened(store: PostgresStore, queue: LockedQueue) -> None:
    lease = await claim(store, 60.0)
    ended, released_at = await queue.keep_waiting(store.reclaim(longest_seconds=LEASE_SECONDS))
    assert ended == []
    assert released_at + LEASE_SECONDS * 1000 <= await queue.end_of(lease) < released_at + 60_000
