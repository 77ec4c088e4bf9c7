"""Time for jobs on their way in: many at once, or awaited one by one."""

from __future__ import annotations

import asyncio
import time

from bench.contender import Outcome
from bench.yard.workload import GROUPS, LIMITED, WARM_UP, Bench, run


def insert(url: str, jobs: int, chunk: int | None) -> Outcome:
    """From the caller's arguments to the last commit: making the calls is inside the time."""

    async def main() -> float:
        bench = Bench(url, LIMITED)
        async with bench.yard:
            await bench.insert(WARM_UP, WARM_UP)
            started = time.perf_counter()
            await bench.insert(jobs, chunk or jobs)
            return time.perf_counter() - started

    return Outcome({"jobs_per_second": jobs / run(main())})


def enqueue(url: str, jobs: int, callers: int) -> Outcome:
    async def main() -> float:
        bench = Bench(url, LIMITED)

        async def call(jobs: int) -> None:
            for number in range(jobs):
                await bench.grouped[number % len(GROUPS)].enqueue()

        async with bench.yard:
            await call(WARM_UP)
            started = time.perf_counter()
            await asyncio.gather(*(call(jobs // callers) for _ in range(callers)))
            return time.perf_counter() - started

    return Outcome({"jobs_per_second": jobs // callers * callers / run(main())})
