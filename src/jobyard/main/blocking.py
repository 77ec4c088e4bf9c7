"""For synchronous programs: a thread with an event loop, and one function that waits for any verb."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from jobyard.main.yard import Jobyard

T = TypeVar("T")


class Blocking:
    """`with yard.blocking() as wait: job = wait(handler.enqueue(1)); print(wait(job.result()))`."""

    def __init__(self, yard: Jobyard) -> None:
        self._yard = yard
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="jobyard-blocking", daemon=True)

    def __enter__(self) -> Blocking:
        self._thread.start()
        try:
            self(self._yard.open())
        except BaseException:
            self._end()
            raise
        return self

    def __call__(self, verb: Coroutine[Any, Any, T]) -> T:
        """Wait for the verb's answer; Ctrl-C stops waiting and cancels it."""
        future = asyncio.run_coroutine_threadsafe(verb, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self(self._yard.close())
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
