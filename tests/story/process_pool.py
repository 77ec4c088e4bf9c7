"""A pool of forked processes; a process that is killed is replaced."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from tests.story.app import declare
from tests.story.flags import Flags
from tests.story.killing_store import KillingStore
from tests.story.process import PR_SET_PDEATHSIG, ProcessSettings, read_settings

from jobyard import Jobyard
from jobyard.config.store_factory import make_store
from jobyard.observability.logs import LogObserver
from jobyard.ports.store import Store
from jobyard.scheduler.scheduler import Scheduler
from jobyard.testing.history import RecordingStore


def main() -> None:
    settings = read_settings()
    children: set[int] = set()
    raised = 0
    is_ending = False

    def end(*_: object) -> None:
        nonlocal is_ending
        is_ending = True
        for child in children:
            os.kill(child, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    while True:
        while not is_ending and len(children) < settings.count:
            # A SIGTERM between fork and add would miss the new child.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            children.add(fork(settings, raised))
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            raised += 1
        if not children:
            return
        child, status = os.wait()
        children.remove(child)
        code = os.waitstatus_to_exitcode(status)
        if code not in (0, -signal.SIGKILL) and not (is_ending and code == -signal.SIGTERM):
            sys.exit(f"a child ended by itself: {code}")


def fork(settings: ProcessSettings, number: int) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if settings.clocks:
            turn_the_clock(settings.clocks[number % len(settings.clocks)])
        asyncio.run(live(settings, number))
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # what the parent registered for its end is not ours to do


def turn_the_clock(seconds: float) -> None:
    """As if this process ran on a machine whose clock is wrong."""
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + seconds
    time.time_ns = lambda: real_ns() + round(seconds * 1e9)


async def live(settings: ProcessSettings, number: int) -> None:
    told_to_end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told_to_end.set)
    journal = Path(settings.journal).with_suffix(f".{number}.history")
    store = make_store(settings.store)
    if settings.obeys_kill_orders:
        store = cast(Store, KillingStore(store, Path(settings.flags)))
    yard = Jobyard(store=RecordingStore(store, journal))
    declare(yard, Path(settings.flags))
    role = {"scheduler": scheduling, "worker": working}[settings.role]
    async with yard, role(yard, settings, f"{settings.name}.{number}"):
        Flags(Path(settings.flags)).put(f"{settings.role}-{os.getpid()}")
        await told_to_end.wait()


@asynccontextmanager
async def scheduling(yard: Jobyard, _: ProcessSettings, name: str) -> AsyncIterator[None]:
    scheduler = Scheduler(yard.store, LogObserver(), name=name)
    await scheduler.start()
    while not scheduler.is_loaded:  # noqa: ASYNC110  # a story waits for many of these
        await asyncio.sleep(0.005)
    yield
    await scheduler.stop()


@asynccontextmanager
async def working(yard: Jobyard, settings: ProcessSettings, name: str) -> AsyncIterator[None]:
    # The default lease is long: with many processes on few cores a renewal may come late.
    async with yard.worker(concurrency=settings.concurrency, lease=settings.lease_seconds, name=name):
        yield


if __name__ == "__main__":
    main()
