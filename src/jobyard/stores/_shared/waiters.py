"""Wakes whoever waits, on whichever thread's event loop, when something changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Protocol, runtime_checkable


@runtime_checkable
class TurnedByHand(Protocol):
    """A clock that says when it is turned; real time passing means nothing to it."""

    def subscribe(self, callback: Callable[[], None], /) -> object: ...


class Waiters:
    def __init__(self) -> None:
        self._lock = Lock()
        self._listeners: set[asyncio.Future[None]] = set()

    def listen(self) -> asyncio.Future[None]:
        """Done at the next ring; taken while the store is locked, so that no ring falls in between."""
        listener: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._listeners.add(listener)
        return listener

    def forget(self, listener: asyncio.Future[None]) -> None:
        with self._lock:
            self._listeners.discard(listener)

    def wake_all(self) -> None:
        with self._lock:
            listeners, self._listeners = self._listeners, set()
        for listener in listeners:
            # A loop that closed meanwhile has nobody left to wake.
            with suppress(RuntimeError):
                listener.get_loop().call_soon_threadsafe(_wake, listener)


def _wake(listener: asyncio.Future[None]) -> None:
    if not listener.done():
        listener.set_result(None)
