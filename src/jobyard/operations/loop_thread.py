"""A thread with an event loop, for synchronous programs: `wait` runs any coroutine there."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from jobyard.errors import NotPossible

T = TypeVar("T")


class LoopThread:
    """Safe to use from several threads between `start` and `end`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._process = 0  # in which the thread runs
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._loop is not None

    def start(self) -> None:
        """Safe twice."""
        with self._lock:
            if self._loop is None:
                self._process = os.getpid()
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
                self._thread.start()

    def wait(self, verb: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine and return its result; Ctrl-C stops the wait and cancels the coroutine."""
        self._require_same_process(verb)
        # A coroutine that is submitted after `end` has cancelled the tasks would never finish.
        with self._lock:
            if self._loop is None:
                verb.close()
                raise RuntimeError("Not open: use it in a `with` block, or call open() first.")
            future = asyncio.run_coroutine_threadsafe(verb, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _require_same_process(self, verb: Coroutine[Any, Any, T]) -> None:
        """A fork copies no threads: in the child, the wait would never end."""
        if self._loop is not None and self._process != os.getpid():
            verb.close()
            raise NotPossible("Cannot use this in a forked process: its parent opened it. Open another after the fork.")

    def end(self) -> None:
        """Cancel what still runs and stop the thread. Safe twice."""
        if self._process != os.getpid():
            return
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
