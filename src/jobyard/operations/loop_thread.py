"""For synchronous programs: a thread with an event loop, and one function that waits for any coroutine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Usable from any number of threads between `start` and `end`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._loop is not None

    def start(self) -> None:
        """Safe twice."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
                self._thread.start()

    def wait(self, verb: Coroutine[Any, Any, T]) -> T:
        """The coroutine's answer; Ctrl-C stops waiting and cancels it."""
        # Nothing can come in between its end and those who are let go then: they would wait for ever.
        with self._lock:
            if self._loop is None:
                verb.close()
                raise RuntimeError("It is not open: use it in a `with` block.")
            future = asyncio.run_coroutine_threadsafe(verb, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def end(self) -> None:
        """Whoever still waits is not left waiting: it is cancelled. Safe twice."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(_cancel_the_rest(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


async def _cancel_the_rest() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
