"""An event loop with virtual time: when nothing is ready, time jumps to the next timer."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any

from jobyard.domain.instant import Instant

EPOCH_MS: Instant = 1_767_225_600_000  # 2026-01-01T00:00:00Z
# A store in another thread or process answers in real time; virtual time stands still meanwhile.
REAL_WAIT_SECONDS = 0.02
# The replica of the manager that a task belongs to.
owner: ContextVar[object | None] = ContextVar("owner", default=None)


class VirtualSelector(selectors.DefaultSelector):
    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self.loop.calls_in_flight or timeout is None:
            return super().select(REAL_WAIT_SECONDS)
        self.loop.now += timeout + 1e-9
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.now = 0.0
        self.calls_in_flight = 0  # to a store, which works in real time
        self.tasks: dict[object, dict[asyncio.Task[Any], None]] = {}  # ordered, so that a seed repeats
        selector = VirtualSelector()
        selector.loop = self
        super().__init__(selector)
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]  # its keywords differ by version

    def time(self) -> float:
        return self.now

    def _make_task(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **more: Any) -> Any:
        task = asyncio.Task(coroutine, loop=loop, **more)
        mine = self.tasks.setdefault(owner.get(), {})
        mine[task] = None
        task.add_done_callback(lambda ended: mine.pop(ended, None))
        return task


class VirtualClock:
    """The clock of the store and of the manager. Threads may read it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now(self) -> Instant:
        return EPOCH_MS + round(self._loop.now * 1000)

    def seconds(self) -> float:
        return EPOCH_MS / 1000 + self._loop.now


def run_virtually(main: Coroutine[Any, Any, Any]) -> Any:
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
