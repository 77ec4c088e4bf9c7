"""Thread pool for blocking handlers; its threads are reused and never delay the end of the process."""

from __future__ import annotations

import asyncio
import ctypes
import os
import queue
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any

from jobyard.executors.python.forked_child import end_forked_child

# An idle thread ends after this long.
IDLE_SECONDS = 10.0


class Interrupted(BaseException):
    """Raised inside a blocking handler to stop it; not an Exception, so that handlers do not swallow it."""


class ThreadCall:
    def __init__(self, function: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.run = copy_context().run
        self.function = function
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.thread: int | None = None
        self._interrupted: type[BaseException] | None = None
        self._lock = threading.Lock()

    def perform(self) -> Callable[[], None]:
        """Run the function; returns what tells the event loop."""
        try:
            with self._lock:
                if self._interrupted is not None:
                    raise self._interrupted  # before a thread was free: it must not run at all
                self.thread = threading.get_ident()
            process = os.getpid()
            try:
                result = self.run(self.function)
            finally:
                end_forked_child(process)
                with self._lock:
                    self.thread = None
        except BaseException as error:
            return partial(self._resolve, self._fail, error)
        return partial(self._resolve, self._succeed, result)

    def interrupt(self, error: type[BaseException]) -> None:
        """Raise inside the thread at its next Python instruction; code blocked in C sees it when it returns."""
        with self._lock:
            self._interrupted = error
            if self.thread is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.thread), ctypes.py_object(error))

    def _resolve(self, method: Callable[[Any], None], value: Any) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(method, value)

    def _succeed(self, result: Any) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def _fail(self, error: BaseException) -> None:
        if not self.future.done():
            # A future refuses StopIteration.
            self.future.set_exception(RuntimeError(repr(error)) if isinstance(error, StopIteration) else error)


class HandlerThreadPool:
    """One daemon thread per running call; concurrent.futures would join a stuck thread at exit."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[ThreadCall] = queue.SimpleQueue()
        self._idle = 0
        self._lock = threading.Lock()

    async def run(self, function: Callable[[], Any]) -> Any:
        """Call the function in a thread. When cancelled, stop it there, and wait until it has ended."""
        call = self.start(function)
        try:
            return await asyncio.shield(call.future)
        except asyncio.CancelledError:
            call.interrupt(Interrupted)
            await asyncio.wait([call.future])
            if not call.future.cancelled():
                call.future.exception()
            raise

    def start(self, function: Callable[[], Any]) -> ThreadCall:
        call = ThreadCall(function, asyncio.get_running_loop())
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            else:
                threading.Thread(target=self._loop, name="jobyard-handler", daemon=True).start()
        self._calls.put(call)
        return call

    def _loop(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._idle > 0:
                        self._idle -= 1
                        return
                continue  # `start` has just counted on this thread for a call
            resolve = call.perform()
            # Idle before the event loop knows of the result: it may start the next call at once.
            with self._lock:
                self._idle += 1
            resolve()
            del call, resolve  # an idle thread must not keep the last result alive
