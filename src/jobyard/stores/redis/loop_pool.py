"""State of the store that belongs to one event loop: its connections, its subscriber, its inserts to be batched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from jobyard.errors import StoreUnavailable
from jobyard.stores.redis.address import RedisAddress
from jobyard.stores.redis.connection import REPLY_SECONDS, RedisConnection, connect
from jobyard.stores.redis.subscriber import RedisSubscriber

# With BUSY commands in flight on each connection another one is opened; FULL is the most that one takes. Fewer than
# BUSY would open connections that pipelining makes unnecessary, more than FULL would let commands miss their deadline.
BUSY, FULL = 16, 256
RETRY_SECONDS = 0.005  # when all connections are FULL


class LoopPool:
    def __init__(
        self,
        address: RedisAddress,
        prefix: str,
        max_connections: int,
        forward_wakeup: Callable[[str], Coroutine[Any, Any, None]],
    ) -> None:
        self._address = address
        self._prefix = prefix
        self._max_connections = max_connections
        self._forward_wakeup = forward_wakeup
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: list[RedisConnection] = []
        self._opening: asyncio.Task[None] | None = None
        self._subscriber: RedisSubscriber | None = None
        self._closed = False
        self.loop = asyncio.get_running_loop()
        self.insert_calls: list[Any] = []  # made during this turn of the loop, sent together at its end
        self.inserts_in_flight = 0
        # A loop that ends without closing the store cancels its tasks: this one then closes the connections.
        self._guard = self.loop.create_task(self._close_with_loop())

    @property
    def subscriber(self) -> RedisSubscriber:
        if self._subscriber is None:
            self._subscriber = RedisSubscriber(
                self._address, self._prefix, lambda queue: self.spawn(self._forward_wakeup(queue))
            )
        return self._subscriber

    def reconnect(self) -> None:
        """Drop every connection; the next command opens a new one and resolves the host name again."""
        for connection in self._connections:
            connection.close()
        if self._subscriber is not None:
            self._subscriber.reconnect()

    def wake_all(self) -> None:
        if self._subscriber is not None:
            self._subscriber.wake_all()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def idle_connection(self) -> RedisConnection | None:
        """A connection that takes a command at once, if there is one."""
        for connection in self._connections:
            if connection.is_open and connection.in_flight < BUSY:
                return connection
        return None

    async def connection(self) -> RedisConnection:
        """The least busy connection; a new one when all are busy and the pool may grow."""
        deadline = self.loop.time() + REPLY_SECONDS
        while True:
            self._connections = [connection for connection in self._connections if connection.is_open]
            if self._closed:
                raise StoreUnavailable(f"Cannot use the store {self._address.url}: it was closed.")
            least = min(self._connections, key=lambda connection: connection.in_flight, default=None)
            if least is not None and least.in_flight < BUSY:
                return least
            if len(self._connections) < self._max_connections:
                await self._open_another()
            elif least is not None and least.in_flight < FULL:
                return least
            elif self.loop.time() > deadline:
                raise StoreUnavailable(
                    f"Cannot send to {self._address.url}: all {self._max_connections} connections have been busy for "
                    f"{REPLY_SECONDS:g} s. Raise `connections`, or send fewer commands at once."
                )
            else:
                await asyncio.sleep(RETRY_SECONDS)

    async def _open_another(self) -> None:
        """Callers that arrive meanwhile share the attempt; a cancelled caller does not stop it."""
        if self._opening is None or self._opening.done():
            self._opening = self.loop.create_task(self._open())
        await asyncio.shield(self._opening)

    async def _open(self) -> None:
        connection = await connect(self._address)
        if self._closed:
            connection.close()
            return
        self._connections.append(connection)

    async def close(self) -> None:
        self._closed = True
        for connection in self._connections:
            with suppress(StoreUnavailable):
                await connection.drain()
        await self._close_all()
        self._guard.cancel()
        with suppress(asyncio.CancelledError):
            await self._guard

    async def _close_all(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._subscriber is not None:
            await self._subscriber.close(StoreUnavailable("The store was closed."))
        for connection in self._connections:
            connection.close()
        for connection in self._connections:
            await connection.closed

    async def _close_with_loop(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            if not self._closed:
                await self._close_all()
