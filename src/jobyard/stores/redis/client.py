"""Redis client shared by all parts of the store: sends commands on the connections of the calling event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hiredis import ReplyError

from jobyard.errors import BadInput, StoreError, StoreReadOnly
from jobyard.ports.clock import Clock
from jobyard.stores._shared.errors import not_open
from jobyard.stores._shared.process_guard import ProcessGuard
from jobyard.stores.redis.address import RedisAddress
from jobyard.stores.redis.codec import encode
from jobyard.stores.redis.connection import REPLY_SECONDS
from jobyard.stores.redis.errors import is_function_missing, is_late, store_error
from jobyard.stores.redis.loop_pool import LoopPool
from jobyard.stores.redis.scripts import library


class RedisClient:
    """Usable from any event loop; each has its own pool of connections."""

    def __init__(self, address: RedisAddress, prefix: str, max_connections: int, clock: Clock | None) -> None:
        self.address = address
        self.prefix = prefix
        self.clock = clock
        self.is_open = False
        self.process = ProcessGuard(address.url)
        self._max_connections = max_connections
        self._clock_offset_ms = 0.0  # of the server's clock to time.monotonic() here
        self._pools: dict[asyncio.AbstractEventLoop, LoopPool] = {}
        self._lock = threading.Lock()
        self._function_prefix = f"{library().name}_"

    @property
    def pool(self) -> LoopPool:
        self.process.require_same()
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            if not self.is_open:
                raise not_open(self.address.url)
            with self._lock:
                for closed in [one for one in self._pools if one.is_closed()]:
                    del self._pools[closed]
                pool = LoopPool(self.address, self.prefix, self._max_connections, self._forward_wakeup)
                self._pools[loop] = pool
        return pool

    async def close(self) -> None:
        self.process.closed()
        self.is_open = False
        with self._lock:
            pools, self._pools = self._pools, {}
        own = pools.pop(asyncio.get_running_loop(), None)
        for loop, pool in pools.items():
            if not loop.is_closed():
                asyncio.run_coroutine_threadsafe(pool.close(), loop)
        if own is not None:
            await own.close()

    def on_each_loop(self, work: Callable[[LoopPool], None]) -> None:
        """Schedule `work` on each event loop that uses the store; callable from any thread."""
        for loop, pool in list(self._pools.items()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(work, pool)

    async def _forward_wakeup(self, queue: str) -> None:
        """Pass a wake-up to another process; if that fails, its waiters poll within a second."""
        with suppress(StoreError):
            await self.call("forward_wakeup", {"name": queue})

    async def execute(self, *words: str | bytes | int) -> Any:
        """Run a built-in command."""
        pool = self.pool
        connection = pool.idle_connection() or await pool.connection()
        reply = await connection.send(*words)
        if isinstance(reply, ReplyError):
            raise self.error_of(reply) from reply
        return reply

    def error_of(self, reply: ReplyError) -> StoreError:
        """Also drops the connections to a server that became a replica: its name may point to another one by now."""
        error = store_error(reply, self.address.url)
        if isinstance(error, StoreReadOnly):
            self.pool.reconnect()
        return error

    async def sync_clock(self) -> None:
        """Measure the offset of the server's clock, from which the deadline of a command is computed."""
        seconds, microseconds = await self.execute("TIME")
        self._clock_offset_ms = int(seconds) * 1000 + int(microseconds) / 1000 - time.monotonic() * 1000

    async def load_library(self) -> None:
        """Load the Lua commands; the server keeps them, also over a restart."""
        await self.execute("FUNCTION", "LOAD", "REPLACE", library().text)

    def encode_call(
        self, command: str, request: dict[str, Any], *arguments: bytes, extra_seconds: float = 0.0
    ) -> tuple[str | bytes, ...]:
        """The words of a call to a Lua command. With `now` 0 the server's clock decides."""
        if self.clock is not None:
            request["now"] = self.clock.now()
        else:
            request["now"] = 0
            deadline = time.monotonic() + REPLY_SECONDS + extra_seconds
            request["deadline"] = round(deadline * 1000 + self._clock_offset_ms)
        try:
            return (b"FCALL", self._function_prefix + command, b"0", self.prefix, encode(request), *arguments)
        except UnicodeEncodeError as error:
            raise BadInput(f"Cannot store this text: {error}.") from error

    async def call(self, command: str, request: dict[str, Any], *arguments: bytes, extra_seconds: float = 0.0) -> Any:
        """Call a Lua command; loads the library, or measures the clock again, when the server asks for it."""
        pool = self.pool
        connection = pool.idle_connection() or await pool.connection()
        words = self.encode_call(command, request, *arguments, extra_seconds=extra_seconds)
        reply = await connection.send(*words, extra_seconds=extra_seconds)
        if isinstance(reply, ReplyError) and (is_function_missing(reply) or is_late(reply)):
            await (self.load_library() if is_function_missing(reply) else self.sync_clock())
            connection = pool.idle_connection() or await pool.connection()
            words = self.encode_call(command, request, *arguments, extra_seconds=extra_seconds)
            reply = await connection.send(*words, extra_seconds=extra_seconds)
        if isinstance(reply, ReplyError):
            raise self.error_of(reply)
        return reply
