"""A bounded set of connections; a verb that was begun is finished, and a connection in doubt is not used again."""

from __future__ import annotations

import asyncio
import random
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias, TypeVar

import asyncpg

from jobyard.errors import StoreUnavailable
from jobyard.stores.postgres.watching import SILENT_SECONDS, Watch
from jobyard.stores.postgres.words import TRY_AGAIN, Trouble, is_lost, state_of, translate

T = TypeVar("T")
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

CONNECT_SECONDS = 4.0
COMMAND_SECONDS = 30.0
# Behind PgBouncer nobody can tell whether the server is still busy with a silent connection: a verb has this long.
POOLED_SECONDS = 5.0
# A pool that is used up says so after this long.
PATIENCE_SECONDS = 30.0
CLOSE_SECONDS = 5.0
# Deadlocks and busy rows are met again a moment later.
ATTEMPTS = 60
FIRST_NAP_SECONDS, LONGEST_NAP_SECONDS = 0.002, 0.25


class Pool:
    """`size` 0 keeps no connection: each verb has its own, for a handle that nobody will close."""

    def __init__(self, url: str, shown: str, *, size: int, pooled: bool) -> None:
        self.shown = shown
        self._url = url
        self._pooled = pooled
        self._size = max(1, size)
        self._keeps = size > 0
        self._idle: list[Connection] = []
        self._count = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watching: set[asyncio.Task[None]] = set()
        self._closed = False

    async def connect(self) -> Connection:
        # A name in the URL wins: whoever looks at pg_stat_activity should find what the operator chose.
        named = "application_name=" in self._url
        connection: Connection = await asyncpg.connect(
            self._url,
            timeout=CONNECT_SECONDS,
            # The driver would ask PgBouncer to cancel, which ends version 1.18 with a FATAL error.
            command_timeout=None if self._pooled else COMMAND_SECONDS,
            # Behind PgBouncer the next statement may meet another session, which knows nothing that we prepared.
            statement_cache_size=0 if self._pooled else 200,
            server_settings=self._settings(named=named),
        )
        keep_alive(connection)
        return connection

    def _settings(self, *, named: bool) -> dict[str, str]:
        # Nothing that a pooler in front of the server might not know: it would refuse us.
        return {} if named else {"application_name": "jobyard"}

    async def run(
        self,
        work: Callable[[Connection], Awaitable[T]],
        attempts: int = ATTEMPTS,
        pooled_seconds: float = POOLED_SECONDS,
    ) -> T:
        """Do the work on a connection. If the caller is cancelled the work goes on, and the connection comes back."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()
        task = loop.create_task(self._finish(outcome, work, attempts, pooled_seconds))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Not the task itself behind a shield: that would take another turn of the loop.
        return await outcome

    async def _finish(
        self,
        outcome: asyncio.Future[T],
        work: Callable[[Connection], Awaitable[T]],
        attempts: int,
        pooled_seconds: float,
    ) -> None:
        """Whoever waits has the outcome; if nobody does any longer, nobody wants it."""
        try:
            answer = await self._patiently(work, attempts, pooled_seconds)
        except asyncio.CancelledError:
            outcome.cancel()
            raise
        except BaseException as error:
            if not outcome.done():
                outcome.set_exception(error)
            if not isinstance(error, Exception):
                raise
        else:
            if not outcome.done():
                outcome.set_result(answer)

    async def _patiently(self, work: Callable[[Connection], Awaitable[T]], attempts: int, pooled_seconds: float) -> T:
        nap = FIRST_NAP_SECONDS
        for left in range(attempts - 1, -1, -1):
            try:
                return await self._once(work, pooled_seconds)
            except Trouble as error:
                if state_of(error) not in TRY_AGAIN or not left or self._closed:
                    raise translate(error, self.shown) from error
            await asyncio.sleep(nap * (0.5 + random.random()))
            nap = min(nap * 2, LONGEST_NAP_SECONDS)
        raise AssertionError

    async def _once(self, work: Callable[[Connection], Awaitable[T]], pooled_seconds: float) -> T:
        return await self.alone(partial(self._inside, work) if self._pooled else work, pooled_seconds)

    async def alone(self, work: Callable[[Connection], Awaitable[T]], pooled_seconds: float = COMMAND_SECONDS) -> T:
        """Outside of any transaction, for plain statements only."""
        connection = await self._acquire()
        watch = Watch(connection, self.connect)
        loop = asyncio.get_running_loop()
        timer = (
            loop.call_later(pooled_seconds, self._give_up, connection)
            if self._pooled
            else loop.call_later(SILENT_SECONDS, self._suspect, watch)
        )
        try:
            answer = await work(connection)
        except BaseException as error:
            await self._release(connection, sound=not is_lost(error))
            raise
        finally:
            watch.is_over = True
            timer.cancel()
        await self._release(connection, sound=True)
        return answer

    def _suspect(self, watch: Watch) -> None:
        task = asyncio.get_running_loop().create_task(self._end_if_silent(watch))
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)

    async def _end_if_silent(self, watch: Watch) -> None:
        if await watch.until_silent():
            self._give_up(watch.connection)

    def _give_up(self, connection: Connection) -> None:
        """Those that are idle came the same way: each would cost its next user as long again."""
        idle, self._idle = self._idle, []
        self._count -= len(idle)
        for one in [connection, *idle]:
            one.terminate()

    async def _inside(self, work: Callable[[Connection], Awaitable[T]], connection: Connection) -> T:
        """In a transaction, even for one statement: what is parsed and what is bound must meet the same session."""
        async with connection.transaction():
            return await work(connection)

    async def _acquire(self) -> Connection:
        while True:
            if self._closed:
                raise StoreUnavailable(f"The store {self.shown} is closed: use it inside `async with`.")
            while self._idle:
                # The last one used: its session has its plans at hand.
                connection = self._idle.pop()
                if not connection.is_closed():
                    return connection
                self._count -= 1
            if self._count < self._size:
                self._count += 1
                try:
                    return await self.connect()
                except BaseException:
                    self._count -= 1
                    self._wake_one()
                    raise
            await self._wait_for_one()

    async def _wait_for_one(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await waiter
        except TimeoutError:
            raise StoreUnavailable(
                f"All {self._size} connections to {self.shown} have been in use for {PATIENCE_SECONDS:g} s. "
                "Allow more, or look for what is slow."
            ) from None
        finally:
            with suppress(ValueError):
                self._waiters.remove(waiter)

    async def _release(self, connection: Connection, *, sound: bool) -> None:
        sound = sound and not connection.is_closed() and not connection.is_in_transaction()
        if sound and self._keeps and not self._closed:
            self._idle.append(connection)
            self._wake_one()
            return
        try:
            if sound:
                await _part(connection)
            else:
                connection.terminate()
        finally:
            self._count -= 1
            self._wake_one()

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def close(self) -> None:
        """Finish what was begun, then let go; also when the server is gone."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
        self._closed = True
        for task in self._watching:
            task.cancel()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        idle, self._idle = self._idle, []
        self._count -= len(idle)
        await asyncio.gather(*(_part(connection) for connection in idle))


async def _part(connection: Connection) -> None:
    try:
        await connection.close(timeout=CLOSE_SECONDS)
    except Trouble:
        connection.terminate()


def keep_alive(connection: Connection) -> None:
    """Notice within a minute that the other side is gone, although nothing is sent meanwhile."""
    transport = getattr(connection, "_transport", None)
    found = None if transport is None else transport.get_extra_info("socket")
    if found is None or found.family == getattr(socket, "AF_UNIX", None):
        return
    with suppress(OSError):
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4)):
            if hasattr(socket, option):
                found.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
