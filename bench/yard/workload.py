"""A yard with one queue of no-op jobs in a hundred groups, and its filling."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, TypeVar

from jobyard import Context, Jobyard

QUEUE = "bench"
GROUPS = [f"group-{number:03}" for number in range(100)]
# Jobs at once in the whole queue, and in one worker: the width that suits each store, as peers are given theirs.
MAX_RUNNING = 1000
CHUNK = 1000
WARM_UP = 20
KEEP_ALL = 1_000_000_000
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Limits:
    max_running: int | None
    max_per_group: int | None
    keep_completed: int = 100

    def keeping_all(self) -> Limits:
        return replace(self, keep_completed=KEEP_ALL)


LIMITED = Limits(max_running=MAX_RUNNING, max_per_group=10)
UNLIMITED = Limits(max_running=None, max_per_group=None)
SERIAL = Limits(max_running=MAX_RUNNING, max_per_group=1)


def width(url: str) -> int:
    return 500 if url.startswith("sqlite") else 1000


def run(main: Coroutine[Any, Any, Result]) -> Result:
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if find_spec("uvloop") is not None:
        import uvloop  # noqa: PLC0415 - optional

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


class Bench:
    """A yard with one queue and its handlers; `ran` is called for each job as its handler starts."""

    def __init__(self, url: str, limits: Limits, ran: Callable[[int], None] = lambda sent: None) -> None:
        self.yard = Jobyard(url)
        self.yard.queue(
            QUEUE,
            max_running=limits.max_running,
            max_per_group=limits.max_per_group,
            keep_completed=limits.keep_completed,
            keep_failed=50,
        )

        @self.yard.job(queue=QUEUE)
        async def noop(ctx: Context) -> None:
            ran(0)

        @self.yard.job(queue=QUEUE)
        async def stamp(ctx: Context, sent: int) -> None:
            ran(time.monotonic_ns() - sent if sent else 0)

        self.noop = noop
        self.stamp = stamp
        self.grouped = [noop.options(group=group) for group in GROUPS]

    async def insert(self, jobs: int, chunk: int) -> None:
        for start in range(0, jobs, chunk):
            await self.yard.enqueue_many(
                *(self.grouped[number % len(GROUPS)].call() for number in range(start, min(start + chunk, jobs)))
            )

    async def unsettled(self) -> int:
        return sum(queue.waiting + queue.running for queue in await self.yard.queues())


def fill(url: str, limits: Limits, jobs: int) -> None:
    async def main() -> None:
        bench = Bench(url, limits)
        async with bench.yard:
            await bench.insert(jobs, 10 * CHUNK)

    run(main())


def fill_apart(url: str, limits: Limits, jobs: int) -> None:
    """In a process of its own, so that the worker's memory is the worker's."""
    process = multiprocessing.get_context("spawn").Process(target=fill, args=(url, limits, jobs))
    process.start()
    process.join()
    assert process.exitcode == 0, "the jobs could not be inserted"
