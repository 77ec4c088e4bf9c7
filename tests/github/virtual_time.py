"""An event loop whose clock jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

EPOCH = 1_790_000_000.0


class _JumpingSelector(selectors.DefaultSelector):
    """Never blocks; what the loop would have waited is added to its clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("Nothing is scheduled: the test would wait for ever.")
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.virtual_selector = _JumpingSelector()
        super().__init__(self.virtual_selector)

    def time(self) -> float:
        return self.virtual_selector.now


def wall_clock() -> float:
    """Seconds since the epoch, in step with the running loop."""
    return EPOCH + asyncio.get_running_loop().time()


def run_virtually(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
