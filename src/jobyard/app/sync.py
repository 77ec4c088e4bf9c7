"""The API for synchronous programs: a thread with an event loop, and a function that waits for a coroutine."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from jobyard.operations.loop_thread import LoopThread

if TYPE_CHECKING:
    from jobyard.app.jobyard import Jobyard

T = TypeVar("T")


class Blocking:
    """`with yard.blocking() as wait: job = wait(handler.enqueue(1)); print(wait(job.result()))`."""

    def __init__(self, yard: Jobyard) -> None:
        self._yard = yard
        self._thread = LoopThread("jobyard-blocking")

    def __enter__(self) -> Blocking:
        self._thread.start()
        try:
            self(self._yard.open())
        except BaseException:
            self._thread.end()
            raise
        return self

    def __call__(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for the result of the coroutine; Ctrl-C cancels it."""
        return self._thread.wait(coroutine)

    def __exit__(self, *_: object) -> None:
        try:
            self(self._yard.close())
        finally:
            self._thread.end()
