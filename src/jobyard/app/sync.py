"""The API for synchronous programs: a function that waits for a coroutine in the event loop of the yard."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, overload

from jobyard.errors import NotPossible
from jobyard.operations.loop_thread import LoopThread

if TYPE_CHECKING:
    from jobyard.app.jobyard import Jobyard

T = TypeVar("T")
END = object()


class Blocking:
    """Waits for the calls of a yard: `wait = yard.blocking()`, then `wait(task.enqueue(1))` in any thread.

    The first call opens the yard in a background thread, in a forked process too, and the yard stays open until the
    process ends. `with yard.blocking() as wait:` opens it at once and closes it after the block. A yard that is open
    already, in a worker or an asynchronous server, is used in its own event loop.
    """

    def __init__(self, yard: Jobyard) -> None:
        self._yard = yard
        self._thread: LoopThread | None = None
        self._process = 0  # that opened it
        self._has_block = False
        self._is_closed = False
        self._lock = threading.Lock()

    def open(self) -> None:
        """Open the yard now, not at the first call: before your own transaction holds the lock of a SQLite file."""
        if loop_of(self._yard) is None:
            self._open()

    def __enter__(self) -> Blocking:
        self._has_block = True
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
        self.close()

    @overload
    def __call__(self, verb: Coroutine[Any, Any, T]) -> T: ...
    @overload
    def __call__(self, verb: AsyncIterator[T]) -> Iterator[T]: ...
    def __call__(self, verb: Coroutine[Any, Any, Any] | AsyncIterator[Any]) -> Any:
        """Wait for the result of the coroutine; Ctrl-C cancels it. A list that is read page by page is iterated."""
        if isinstance(verb, Coroutine):
            return self._wait(verb)
        return self._iterate(verb)

    def _wait(self, verb: Coroutine[Any, Any, T]) -> T:
        try:
            loop = self._loop()
        except BaseException:
            verb.close()
            raise
        future = asyncio.run_coroutine_threadsafe(_when_open(self._yard, verb), loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        while (item := self._wait(_next(items))) is not END:
            yield item

    def _loop(self) -> asyncio.AbstractEventLoop:
        """The event loop in which the yard is open."""
        if self._is_closed:
            raise RuntimeError("Not open: the block of `with yard.blocking()` has ended.")
        if self._has_block and self._process != os.getpid():
            raise NotPossible("Cannot use this in a forked process: its parent opened it. Open another after the fork.")
        loop = loop_of(self._yard)
        if loop is None:
            self._open()
            loop = loop_of(self._yard)
            assert loop is not None
        if loop is _running_loop():
            raise NotPossible("Cannot wait inside the event loop: it would deadlock. Write `await` instead.")
        return loop

    def _open(self) -> None:
        if self._process != os.getpid():
            self._lock, self._thread = threading.Lock(), None  # of the parent, which may have held it
            self._process = os.getpid()
        with self._lock:
            loop = loop_of(self._yard)
            if loop is None and self._thread is None:
                self._thread = LoopThread("jobyard-blocking")
                self._thread.start()
            elif not self._has_block:
                return  # another thread was faster
            try:
                if loop is None:
                    assert self._thread is not None
                    self._thread.wait(self._yard.open())
                else:
                    asyncio.run_coroutine_threadsafe(self._yard.open(), loop).result()
            except BaseException:
                self._end_thread()
                raise

    def close(self) -> None:
        """Close the yard, as the end of the block does. Not needed at the end of the process. Safe twice."""
        if self._process != os.getpid():
            return
        try:
            loop = loop_of(self._yard)
            if loop is not None and (self._thread is not None or self._has_block):
                asyncio.run_coroutine_threadsafe(self._yard.close(), loop).result()
        finally:
            self._end_thread()

    def _end_thread(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.end()


def loop_of(yard: Jobyard) -> asyncio.AbstractEventLoop | None:
    """The running event loop in which the yard is open in this process, or None."""
    loop = yard._loop
    is_open = yard._opening is not None and yard._process == os.getpid()
    return loop if is_open and loop is not None and loop.is_running() else None


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _when_open(yard: Jobyard, verb: Coroutine[Any, Any, T]) -> T:
    """Another thread, or the program itself, may still be opening the yard."""
    opening = yard._opening
    if opening is not None and not opening.done():
        try:
            await asyncio.shield(opening)
        except BaseException:
            verb.close()
            raise
    return await verb


async def _next(items: AsyncIterator[Any]) -> Any:
    return await anext(items, END)
