"""Bounded connection pool. A call that has started is finished, and a connection in doubt is closed."""

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
from jobyard.stores.postgres.errors import DRIVER_ERRORS, RETRYABLE, breaks_connection, state_of, translate
from jobyard.stores.postgres.stall_detector import STALL_SECONDS, StallDetector
from jobyard.stores.postgres.type_cache import CachingConnection

T = TypeVar("T")
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Work: TypeAlias = Callable[[Connection], Awaitable[T]]

CONNECT_SECONDS = 4.0
COMMAND_SECONDS = 30.0
# Behind PgBouncer a stall cannot be told from a busy server, so each call has this timeout instead.
POOLED_SECONDS = 5.0
# Timeout for a free connection of the pool.
ACQUIRE_SECONDS = 30.0
CLOSE_SECONDS = 5.0
# Deadlocks and locked rows are retried with backoff, which adds up to about 13 seconds.
ATTEMPTS = 60
FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 0.002, 0.25


class Pool:
    """With `size` 0, each call opens and closes a connection of its own: for a handle that is never closed."""

    def __init__(self, url: str, display_url: str, *, size: int, pooled: bool) -> None:
        self.display_url = display_url
        self._url = url
        self._pooled = pooled
        self._size = max(1, size)
        self._keeps_idle = size > 0
        self._idle: list[Connection] = []
        self._count = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._detectors: set[asyncio.Task[None]] = set()
        self._closed = False
        self.on_connect: Callable[[Connection], Awaitable[None]] | None = None

    async def connect(self) -> Connection:
        # A name in the URL wins, so that pg_stat_activity shows what the operator chose. No other settings: PgBouncer
        # rejects connections with startup parameters that it does not know.
        settings = {} if "application_name=" in self._url else {"application_name": "jobyard"}
        connection: Connection = await asyncpg.connect(
            self._url,
            timeout=CONNECT_SECONDS,
            # After a timeout the driver sends a cancel request, which PgBouncer 1.18 answers with a FATAL error.
            command_timeout=None if self._pooled else COMMAND_SECONDS,
            # Behind PgBouncer the next statement may run in another session, where nothing is prepared.
            statement_cache_size=0 if self._pooled else 200,
            server_settings=settings,
            connection_class=CachingConnection,
        )
        keep_alive(connection)
        return connection

    async def run(self, work: Work[T], attempts: int = ATTEMPTS, pooled_seconds: float = POOLED_SECONDS) -> T:
        """Run `work` on a connection, with retries. If the caller is cancelled, the work still runs to its end."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()
        task = loop.create_task(self._finish(outcome, work, attempts, pooled_seconds))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A future, because awaiting the task behind asyncio.shield takes one more turn of the event loop.
        return await outcome

    async def _finish(self, outcome: asyncio.Future[T], work: Work[T], attempts: int, pooled_seconds: float) -> None:
        try:
            answer = await self._run_with_retries(work, attempts, pooled_seconds)
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

    async def _run_with_retries(self, work: Work[T], attempts: int, pooled_seconds: float) -> T:
        backoff = FIRST_BACKOFF_SECONDS
        for left in range(attempts - 1, -1, -1):
            try:
                return await self.run_once(work, pooled_seconds)
            except DRIVER_ERRORS as error:
                if state_of(error) not in RETRYABLE or not left or self._closed:
                    raise translate(error, self.display_url) from error
            await asyncio.sleep(backoff * (0.5 + random.random()))
            backoff = min(backoff * 2, MAX_BACKOFF_SECONDS)
        raise AssertionError

    async def run_once(self, work: Work[T], pooled_seconds: float) -> T:
        """Without retries and translation of errors."""
        return await self.run_bare(partial(_in_transaction, work) if self._pooled else work, pooled_seconds)

    async def run_bare(self, work: Work[T], pooled_seconds: float = COMMAND_SECONDS) -> T:
        """As `run_once`, and never inside a transaction; behind a pooler, for plain statements only."""
        while True:
            connection, is_new = await self._acquire()
            protocol = getattr(connection, "_protocol")  # noqa: B009  # the driver forgets it when it closes
            sent = protocol.queries_count
            try:
                return await self._run_on(connection, work, pooled_seconds)
            except DRIVER_ERRORS:
                # The server had ended the session while it was idle: no statement was sent, so another connection can
                # run the work. A new one has no such excuse.
                if is_new or not connection.is_closed() or protocol.queries_count != sent:
                    raise

    async def _run_on(self, connection: Connection, work: Work[T], pooled_seconds: float) -> T:
        detector = StallDetector(connection, self.connect)
        loop = asyncio.get_running_loop()
        timer = (
            loop.call_later(pooled_seconds, self._terminate, connection)
            if self._pooled
            else loop.call_later(STALL_SECONDS, self._detect_stall, detector)
        )
        try:
            answer = await work(connection)
        except BaseException as error:
            await self._release(connection, sound=not breaks_connection(error))
            raise
        finally:
            detector.is_over = True
            timer.cancel()
        await self._release(connection, sound=True)
        return answer

    def _detect_stall(self, detector: StallDetector) -> None:
        task = asyncio.get_running_loop().create_task(self._terminate_if_stalled(detector))
        self._detectors.add(task)
        task.add_done_callback(self._detectors.discard)

    async def _terminate_if_stalled(self, detector: StallDetector) -> None:
        if await detector.until_stalled():
            self._terminate(detector.connection)

    def _terminate(self, connection: Connection) -> None:
        """Close a stalled connection and all idle ones: they used the same route, and would stall their next call."""
        idle, self._idle = self._idle, []
        self._count -= len(idle)
        for one in [connection, *idle]:
            one.terminate()

    async def _acquire(self) -> tuple[Connection, bool]:
        """A connection, and whether it is new."""
        while True:
            if self._closed:
                raise StoreUnavailable(f"The store {self.display_url} is closed. Use it inside `async with`.")
            while self._idle:
                # The one used last: its session has its plans cached.
                connection = self._idle.pop()
                if not connection.is_closed():
                    return connection, False
                self._count -= 1
            if self._count < self._size:
                self._count += 1
                try:
                    return await self._new_connection(), True
                except BaseException:
                    self._count -= 1
                    self._wake_one()
                    raise
            await self._wait_for_one()

    async def _new_connection(self) -> Connection:
        connection = await self.connect()
        if self.on_connect is not None:
            try:
                await self.on_connect(connection)
            except BaseException:
                connection.terminate()
                raise
        return connection

    async def _wait_for_one(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(ACQUIRE_SECONDS):
                await waiter
        except TimeoutError:
            raise StoreUnavailable(
                f"Cannot get a connection to {self.display_url}: all {self._size} were in use for "
                f"{ACQUIRE_SECONDS:g} s. Allow more connections, or find the slow calls."
            ) from None
        finally:
            with suppress(ValueError):
                self._waiters.remove(waiter)

    async def _release(self, connection: Connection, *, sound: bool) -> None:
        sound = sound and not connection.is_closed() and not connection.is_in_transaction()
        if sound and self._keeps_idle and not self._closed:
            self._idle.append(connection)
            self._wake_one()
            return
        try:
            if sound:
                await _close(connection)
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
        """Finish the running calls, then close all connections; also when the server is gone."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
        self._closed = True
        for task in self._detectors:
            task.cancel()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        idle, self._idle = self._idle, []
        self._count -= len(idle)
        await asyncio.gather(*(_close(connection) for connection in idle))


async def _in_transaction(work: Work[T], connection: Connection) -> T:
    """PgBouncer may send the Parse and the Bind of one statement to different sessions, unless in a transaction."""
    async with connection.transaction():
        return await work(connection)


async def _close(connection: Connection) -> None:
    try:
        await connection.close(timeout=CLOSE_SECONDS)
    except DRIVER_ERRORS:
        connection.terminate()


def keep_alive(connection: Connection) -> None:
    """Enable TCP keep-alive: an idle connection notices within a minute that its peer is gone."""
    transport = getattr(connection, "_transport", None)
    found = None if transport is None else transport.get_extra_info("socket")
    if found is None or found.family == getattr(socket, "AF_UNIX", None):
        return
    with suppress(OSError):
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4)):
            if hasattr(socket, option):
                found.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
