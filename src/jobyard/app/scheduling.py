"""A scheduler process: declare the schedules, then fire their ticks until stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from jobyard.app.cron import FILE, declare, of_file, origin_of
from jobyard.app.declarations import declarations_of
from jobyard.app.jobyard import Jobyard
from jobyard.operations.schedules import Schedules
from jobyard.ports.observer import Observer
from jobyard.scheduler.scheduler import Scheduler


class Scheduling:
    """A scheduler that runs until `stop`, which takes effect at once: the store decides each tick in one step."""

    def __init__(self, yard: Jobyard, observer: Observer) -> None:
        self.scheduler = Scheduler(yard.store, observer)
        self._asked = asyncio.Event()

    async def run(self) -> None:
        """Run until stopped. Raises the error that broke the scheduler; its supervisor starts another."""
        await self.scheduler.start()
        asked: asyncio.Task[Any] = asyncio.create_task(self._asked.wait())
        ended = asyncio.create_task(self.scheduler.ended())
        try:
            await asyncio.wait([asked, ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
            await self.scheduler.stop()
        await asyncio.wait([ended])
        if not ended.cancelled():
            ended.result()

    def stop(self) -> None:
        self._asked.set()

    force_stop = stop

    def is_asked(self) -> bool:
        return self._asked.is_set()

    def is_alive(self) -> bool:
        return self.is_asked() or self.scheduler.is_alive


async def declare_all(
    yard: Jobyard, app: str | None, in_file: Mapping[str, Mapping[str, Any]] | None, shortest: float
) -> None:
    """Declare the schedules of the program and of jobyard.yaml; `in_file` is None if there is no file."""
    schedules = Schedules(yard.store, shortest)
    if app is not None:
        await declare(schedules, origin_of(yard.name or app), list(declarations_of(yard).schedules.values()))
    if in_file is not None:
        await declare(schedules, FILE, of_file(in_file, declarations_of(yard).job_factory))
