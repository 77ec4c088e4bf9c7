"""Who sleeps in this process, and how a change reaches them: at once from here, by NOTIFY from elsewhere."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from jobyard.stores._shared.waiters import Waiters
from jobyard.stores.postgres.ending import Ends
from jobyard.stores.postgres.pool import Connection, Pool
from jobyard.stores.postgres.words import Trouble

log = logging.getLogger("jobyard.store")

# What a notification says. It means "look": the tables are the truth.
WORK, CANCEL, ENDS = "w", "c", "e"
# At most one notification of a kind per process and time: the first goes at once, the rest are gathered.
WORK_EVERY_SECONDS, ENDS_EVERY_SECONDS = 0.01, 0.05
LISTEN_AGAIN_SECONDS = 1.0


class Family:
    """What a store and its twins share, across threads."""

    def __init__(self) -> None:
        self.name = secrets.token_hex(4)  # told with each notification: we need not hear ourselves
        self.work = Waiters()
        self.ends = Ends()
        self.cancels = 0  # asked for, as far as this process has heard

    def hear(self, what: str) -> None:
        if CANCEL in what:
            self.cancels += 1
        if ENDS in what:
            self.ends.bell.wake_all()
        if WORK in what or CANCEL in what:
            self.work.wake_all()

    def hear_others(self, payload: str) -> None:
        what, _, name = payload.partition(" ")
        if name != self.name:
            self.hear(what)


class Crier:
    """Tells other processes, outside of any transaction that matters, and not too often."""

    def __init__(self, send: Callable[[str], Awaitable[None]]) -> None:
        self._send = send
        self._next: dict[str, float] = {}
        self._planned: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def tell(self, what: str) -> None:
        if what in self._planned or self._closed:
            return
        loop = asyncio.get_running_loop()
        wait = self._next.get(what, 0.0) - loop.time()
        self._planned.add(what)
        if wait <= 0:
            self._cry(what)
        else:
            loop.call_later(wait, self._cry, what)

    def _cry(self, what: str) -> None:
        loop = asyncio.get_running_loop()
        self._planned.discard(what)
        if self._closed:
            return
        self._next[what] = loop.time() + (ENDS_EVERY_SECONDS if what == ENDS else WORK_EVERY_SECONDS)
        task = loop.create_task(self._cry_out(what))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _cry_out(self, what: str) -> None:
        try:
            await self._send(what)
        except Exception:
            # Others look again by themselves within a second.
            log.debug("telling other processes failed", exc_info=True)

    async def close(self) -> None:
        self._closed = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)


class Ear:
    """One connection that listens; while it does not, those who sleep look by themselves now and then."""

    def __init__(self, pool: Pool, channel: str, family: Family) -> None:
        self._pool = pool
        self._channel = channel
        self._family = family
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self.is_listening = False

    async def open(self) -> None:
        """Begins with the first who sleeps; returns once it listens, or cannot."""
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._ready = loop.create_future()
            self._task = loop.create_task(self._listen_on())
        assert self._ready is not None
        if not self._ready.done():
            await asyncio.wait([self._ready])

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _listen_on(self) -> None:
        while True:
            try:
                await self._listen()
            except Trouble as error:
                log.debug("listening failed: %s", error)
            finally:
                self.is_listening = False
                self._be_ready()
            # Whatever was said meanwhile was not heard.
            self._family.hear(WORK + ENDS)
            await asyncio.sleep(LISTEN_AGAIN_SECONDS * (0.5 + random.random()))

    def _be_ready(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    async def _listen(self) -> None:
        connection = await self._pool.connect()
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def gone(_: Any) -> None:
            if not lost.done():
                lost.set_result(None)

        def heard(_: Connection, pid: int, channel: str, payload: Any) -> None:
            self._family.hear_others(payload)

        try:
            connection.add_termination_listener(gone)
            await connection.add_listener(self._channel, heard)
            self.is_listening = True
            self._be_ready()
            self._family.hear(WORK + ENDS)
            await lost
        finally:
            connection.terminate()
