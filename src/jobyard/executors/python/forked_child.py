"""End of a child process that a handler forked and that returns to the worker's code instead of ending."""

from __future__ import annotations

import asyncio
import logging
import os
import types
import weakref
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")

log = logging.getLogger("jobyard.executor")

EXIT_CODE = 70  # EX_SOFTWARE of sysexits.h
_loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()


@types.coroutine
def run_in_this_process(coroutine: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await it, and end a child process that it forked as soon as that returns, raises or waits.

    A child that waits must not reach the event loop: what is due there in the same turn could read or write the
    sockets of the parent.
    """
    process = os.getpid()
    step: Callable[[Any], Any] = coroutine.send
    value: Any = None
    while True:
        try:
            awaited = step(value)
        except StopIteration as ended:
            result: T = ended.value
            return result
        finally:
            end_forked_child(process)
        try:
            step, value = coroutine.send, (yield awaited)
        except BaseException as error:  # thrown in, as by a cancellation
            step, value = coroutine.throw, error


def end_forked_child(parent: int) -> None:
    """Does nothing in the process `parent`. A copy of the worker would read the responses of the parent's store from
    sockets that both have, and run its timers and tasks a second time."""
    if os.getpid() != parent:
        _end()


def watch_forks(loop: asyncio.AbstractEventLoop) -> None:
    """Also end a child that a task of a handler forked: it would run the worker's event loop."""
    _loops.add(loop)


def _end() -> None:
    try:
        log.error(
            "a handler forked and did not end the child process %d; it ends now. "
            "End it with os._exit, or use subprocess or multiprocessing.",
            os.getpid(),
        )
    finally:
        os._exit(EXIT_CODE)


def _after_fork() -> None:
    # A child that ends by itself, as those of multiprocessing, never returns to this event loop.
    for loop in list(_loops):
        if not loop.is_closed():
            loop.call_soon(_end)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
