"""LISTEN and NOTIFY: changes reach waiters of this process directly and other processes by notification."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from jobyard.stores._shared.waiters import Waiters
from jobyard.stores.postgres.completion_waiters import CompletionWaiters
from jobyard.stores.postgres.errors import DRIVER_ERRORS
from jobyard.stores.postgres.pool import Connection, Pool

log = logging.getLogger("jobyard.store")

# Kinds of notification. Each only means "read the tables": it carries no data.
WORK, CANCEL, ENDS = "w", "c", "e"
# Minimum interval between notifications of a kind from this process: the first is sent at once, later ones are merged.
# Without it, NOTIFY's global lock would limit the commits of all processes.
WORK_INTERVAL_SECONDS, ENDS_INTERVAL_SECONDS = 0.01, 0.05
RECONNECT_SECONDS = 1.0


class ProcessWaiters:
    """Waiters of this process, shared by a store and its handles on other event loops."""

    def __init__(self) -> None:
        self.process = secrets.token_hex(4)  # part of each notification, so that a process ignores its own
        self.work = Waiters()
        self.ends = CompletionWaiters()
        self.cancels = 0  # number of cancel requests that this process knows of

    def wake(self, kinds: str) -> None:
        if CANCEL in kinds:
            self.cancels += 1
        if ENDS in kinds:
            self.ends.changed.wake_all()
        if WORK in kinds or CANCEL in kinds:
            self.work.wake_all()

    def receive(self, payload: str) -> None:
        kinds, _, process = payload.partition(" ")
        if process != self.process:
            self.wake(kinds)


class NotificationSender:
    """Sends notifications at a bounded rate, outside the transactions that they are about."""

    def __init__(self, send: Callable[[str], Awaitable[None]]) -> None:
        self._send = send
        self._not_before: dict[str, float] = {}
        self._scheduled: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def send(self, kind: str) -> None:
        if kind in self._scheduled or self._closed:
            return
        loop = asyncio.get_running_loop()
        wait = self._not_before.get(kind, 0.0) - loop.time()
        self._scheduled.add(kind)
        if wait <= 0:
            self._send_now(kind)
        else:
            loop.call_later(wait, self._send_now, kind)

    def _send_now(self, kind: str) -> None:
        loop = asyncio.get_running_loop()
        self._scheduled.discard(kind)
        if self._closed:
            return
        self._not_before[kind] = loop.time() + (ENDS_INTERVAL_SECONDS if kind == ENDS else WORK_INTERVAL_SECONDS)
        task = loop.create_task(self._try_to_send(kind))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _try_to_send(self, kind: str) -> None:
        try:
            await self._send(kind)
        except Exception:
            # Waiters of other processes poll once a second.
            log.debug("cannot send a notification", exc_info=True)

    async def close(self) -> None:
        self._closed = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)


class NotificationListener:
    """One connection that listens. While it is down, waiters poll."""

    def __init__(self, pool: Pool, channel: str, waiters: ProcessWaiters) -> None:
        self._pool = pool
        self._channel = channel
        self._waiters = waiters
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self.is_listening = False

    async def open(self) -> None:
        """Start on the first call; return once it listens or has failed."""
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._ready = loop.create_future()
            self._task = loop.create_task(self._keep_listening())
        assert self._ready is not None
        if not self._ready.done():
            await asyncio.wait([self._ready])

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _keep_listening(self) -> None:
        while True:
            try:
                await self._listen()
            except DRIVER_ERRORS as error:
                log.debug("cannot listen for notifications: %s", error)
            finally:
                self.is_listening = False
                self._set_ready()
            # Notifications that were sent while it did not listen are lost.
            self._waiters.wake(WORK + ENDS)
            await asyncio.sleep(RECONNECT_SECONDS * (0.5 + random.random()))

    def _set_ready(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    async def _listen(self) -> None:
        connection = await self._pool.connect()
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_termination(_: Any) -> None:
            if not lost.done():
                lost.set_result(None)

        def on_notification(_: Connection, pid: int, channel: str, payload: Any) -> None:
            self._waiters.receive(payload)

        try:
            connection.add_termination_listener(on_termination)
            await connection.add_listener(self._channel, on_notification)
            self.is_listening = True
            self._set_ready()
            self._waiters.wake(WORK + ENDS)
            await lost
        finally:
            connection.terminate()
