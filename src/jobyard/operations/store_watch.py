"""Logs when the store of a server stops responding or taking writes, and when it does so again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from jobyard.operations.health import WRITE_AGAIN_SECONDS, Health

log = logging.getLogger("jobyard.store")


class StoreWatch:
    def __init__(self, health: Health, clock: Callable[[], float] = time.monotonic) -> None:
        self._health = health
        self._clock = clock
        self._failing_since: float | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="jobyard-store-watch")

    async def stop(self) -> None:
        """Safe twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            try:
                await self.run_once()
            except Exception:
                log.exception("the store cannot be checked")
            await asyncio.sleep(WRITE_AGAIN_SECONDS)

    async def run_once(self) -> None:
        began = self._clock()
        reason = await self._health.store_problem()
        if reason and self._failing_since is None:
            self._failing_since = began
            log.error("%s", reason)
        elif not reason and self._failing_since is not None:
            log.warning("the store takes writes again, after %.0f s", self._clock() - self._failing_since)
            self._failing_since = None
