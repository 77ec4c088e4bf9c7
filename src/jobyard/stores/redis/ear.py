"""One subscribed connection per event loop: hears when sleepers should look and which awaited jobs have ended."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from jobyard.errors import StoreError
from jobyard.stores.redis.address import Address
from jobyard.stores.redis.link import Link, connect
from jobyard.stores.redis.packing import split

log = logging.getLogger("jobyard.store")

PING_EVERY_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0

# What a sleeper is told.
WORK = "work"
LOOK = "look"  # something may have been missed: look again
GONE = "gone"


class Ear:
    def __init__(self, address: Address, prefix: str, pass_on: Callable[[str], None]) -> None:
        self.handle = secrets.token_hex(8)
        self._address = address
        self._channel = f"{prefix}:to:{self.handle}"
        self._pass_on = pass_on
        self._sleepers: dict[asyncio.Future[Any], frozenset[str]] = {}
        self._ends: dict[str, set[asyncio.Future[Any]]] = {}
        self._ready = asyncio.Event()
        self._heard = False
        self._link: Link | None = None
        self._task = asyncio.get_running_loop().create_task(self._listen())

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    async def wait_until_ready(self, seconds: float) -> None:
        """Or until the time is over: who cannot be told must look now and then."""
        if not self._ready.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ready.wait(), seconds)

    def sleeper(self, queues: Sequence[str]) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._sleepers[future] = frozenset(queues)
        future.add_done_callback(lambda done: self._sleepers.pop(done, None))
        return future

    def waiter(self, job_id: str) -> asyncio.Future[Any]:
        """Told what is sent about the job, or about the order with this token."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._ends.setdefault(job_id, set()).add(future)
        future.add_done_callback(lambda done: self._forget(job_id, done))
        return future

    def start_over(self) -> None:
        if self._link is not None:
            self._link.close()

    def look_again(self) -> None:
        for future in [*self._sleepers, *(one for some in self._ends.values() for one in some)]:
            _resolve(future, LOOK)

    async def close(self, error: Exception) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        for future in [*self._sleepers, *(one for some in self._ends.values() for one in some)]:
            if not future.done():
                future.set_exception(error)

    def _forget(self, job_id: str, future: asyncio.Future[Any]) -> None:
        waiters = self._ends.get(job_id)
        if waiters is not None:
            waiters.discard(future)
            if not waiters:
                del self._ends[job_id]

    async def _listen(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                link = await connect(self._address)
            except StoreError as error:
                log.debug("subscribing failed, trying again: %s", error)
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                continue
            pause = FIRST_PAUSE_SECONDS
            try:
                await self._hear(link)
            finally:
                self._ready.clear()
                link.close()

    async def _hear(self, link: Link) -> None:
        """Until the connection is lost, or silent for too long."""
        self._link = link
        link.on_message = self._message
        link.tell("SUBSCRIBE", self._channel)
        self._heard = True
        while link.is_open:
            if not self._heard:
                return
            self._heard = False
            link.tell("PING")
            await asyncio.wait([link.closed], timeout=PING_EVERY_SECONDS)

    def _message(self, message: Any) -> None:
        self._heard = True
        if not isinstance(message, list):
            return
        if message[0] == b"subscribe":
            self._ready.set()
            # What was published meanwhile is lost.
            self.look_again()
        elif message[0] == b"message":
            self._told(message[2])

    def _told(self, data: bytes) -> None:
        what, rest = data[:1], data[1:]
        if what == b"w":
            self._wake(rest.decode())
        elif what == b"e":
            job_id, parts = split(rest)
            for future in list(self._ends.get(job_id.decode(), ())):
                _resolve(future, split(parts))
        elif what == b"x":
            token, *parts_of_answer = split(rest)
            for future in list(self._ends.get(token.decode(), ())):
                _resolve(future, parts_of_answer)
        elif what == b"l":
            for future in list(self._ends.get(rest.decode(), ())):
                _resolve(future, LOOK)
        elif what == b"g":
            for future in list(self._ends.get(rest.decode(), ())):
                _resolve(future, GONE)

    def _wake(self, queue: str) -> None:
        interested = [future for future, queues in self._sleepers.items() if not queues or queue in queues]
        for future in interested:
            _resolve(future, WORK)
        if not interested:
            self._pass_on(queue)


def _resolve(future: asyncio.Future[Any], answer: Any) -> None:
    if not future.done():
        future.set_result(answer)
