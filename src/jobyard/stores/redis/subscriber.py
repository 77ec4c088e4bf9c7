"""Pub/sub connection of one event loop: delivers wake-ups, served claims and ended jobs to their waiters."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from jobyard.errors import StoreError
from jobyard.stores.redis.address import RedisAddress
from jobyard.stores.redis.codec import split_strings
from jobyard.stores.redis.connection import RedisConnection, connect

log = logging.getLogger("jobyard.store")

# A connection that the network dropped brings no messages and no error: only a missing pong shows it.
PING_EVERY_SECONDS = 5.0
# Pauses between attempts to subscribe again, growing: without them every process would keep a restarting server busy.
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0

# Results of a waiter's future, besides the parts of a job or of a served claim.
WORK = "work"
CHECK = "check"  # a message may have been missed: check again
DELETED = "deleted"


class RedisSubscriber:
    """`forward_wakeup` is called with a queue whose wake-up arrived when no waiter of this loop takes it any more."""

    def __init__(self, address: RedisAddress, prefix: str, forward_wakeup: Callable[[str], None]) -> None:
        self.id = secrets.token_hex(8)
        self._address = address
        self._channel = f"{prefix}:to:{self.id}"
        self._forward_wakeup = forward_wakeup
        self._work_waiters: dict[asyncio.Future[Any], frozenset[str]] = {}
        self._waiters: dict[str, set[asyncio.Future[Any]]] = {}  # by job id, or by token of a waiting claim
        self._ready = asyncio.Event()
        self._received = False
        self._connection: RedisConnection | None = None
        self._task = asyncio.get_running_loop().create_task(self._listen())

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    async def wait_until_ready(self, seconds: float) -> None:
        """Return when subscribed, or after `seconds`: the caller then has to poll."""
        if not self._ready.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._ready.wait()

    def work_waiter(self, queues: Sequence[str]) -> asyncio.Future[Any]:
        """Future that gets WORK when a job of `queues` may be claimable."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._work_waiters[future] = frozenset(queues)
        future.add_done_callback(lambda done: self._work_waiters.pop(done, None))
        return future

    def waiter(self, key: str) -> asyncio.Future[Any]:
        """Future that gets the message about this job id, or about the waiting claim with this token."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(key, set()).add(future)
        future.add_done_callback(lambda done: self._forget(key, done))
        return future

    def reconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def wake_all(self) -> None:
        for future in self._all_waiters():
            _resolve(future, CHECK)

    async def close(self, error: Exception) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        for future in self._all_waiters():
            if not future.done():
                future.set_exception(error)

    def _all_waiters(self) -> list[asyncio.Future[Any]]:
        return [*self._work_waiters, *(future for futures in self._waiters.values() for future in futures)]

    def _forget(self, key: str, future: asyncio.Future[Any]) -> None:
        waiters = self._waiters.get(key)
        if waiters is not None:
            waiters.discard(future)
            if not waiters:
                del self._waiters[key]

    async def _listen(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                connection = await connect(self._address)
            except StoreError as error:
                log.debug("cannot subscribe, retrying: %s", error)
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                continue
            pause = FIRST_PAUSE_SECONDS
            try:
                await self._receive(connection)
            finally:
                self._ready.clear()
                connection.close()

    async def _receive(self, connection: RedisConnection) -> None:
        """Return when the connection is lost, or when a ping was not answered until the next one."""
        self._connection = connection
        connection.on_message = self._message
        connection.send_unanswered("SUBSCRIBE", self._channel)
        self._received = True
        while connection.is_open:
            if not self._received:
                return
            self._received = False
            connection.send_unanswered("PING")
            await asyncio.wait([connection.closed], timeout=PING_EVERY_SECONDS)

    def _message(self, message: Any) -> None:
        self._received = True
        if not isinstance(message, list):
            return
        if message[0] == b"subscribe":
            self._ready.set()
            # Messages published before this moment are lost.
            self.wake_all()
        elif message[0] == b"message":
            self._dispatch(message[2])

    def _dispatch(self, data: bytes) -> None:
        """The first byte is the type of the message, as the Lua commands publish it."""
        kind, rest = data[:1], data[1:]
        if kind == b"w":
            self._wake_one_queue(rest.decode())
        elif kind == b"e":
            job_id, parts = split_strings(rest)
            self._deliver(job_id, split_strings(parts))
        elif kind == b"x":
            token, *parts_of_claim = split_strings(rest)
            self._deliver(token, parts_of_claim)
        elif kind == b"l":
            self._deliver(rest, CHECK)
        elif kind == b"g":
            self._deliver(rest, DELETED)

    def _deliver(self, key: bytes, result: Any) -> None:
        for future in list(self._waiters.get(key.decode(), ())):
            _resolve(future, result)

    def _wake_one_queue(self, queue: str) -> None:
        interested = [future for future, queues in self._work_waiters.items() if not queues or queue in queues]
        for future in interested:
            _resolve(future, WORK)
        if not interested:
            self._forward_wakeup(queue)


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)
