"""Registry of futures that wait for a change, on any thread's event loop."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from threading import Lock


class Waiters:
    def __init__(self) -> None:
        self._lock = Lock()
        self._futures: set[asyncio.Future[None]] = set()

    def add(self) -> asyncio.Future[None]:
        """Return a future that the next `wake_all` resolves.

        Add it before checking the condition, or while the store is locked: a change in between would be missed.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._futures.add(future)
        return future

    def discard(self, future: asyncio.Future[None]) -> None:
        with self._lock:
            self._futures.discard(future)

    def wake_all(self) -> None:
        """Resolve all futures, each on its own event loop. May be called from any thread."""
        with self._lock:
            futures, self._futures = self._futures, set()
        for future in futures:
            # An event loop that has closed has no waiters left.
            with suppress(RuntimeError):
                future.get_loop().call_soon_threadsafe(_resolve, future)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
