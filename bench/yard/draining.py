"""Time for a backlog, until the public counts say that nothing waits or runs."""

from __future__ import annotations

import asyncio
import resource
import time
from pathlib import Path

from bench.contender import Outcome
from bench.yard.workload import QUEUE, Bench, Limits, run, width

WINDOWS = 10


async def work_off(url: str, limits: Limits, jobs: int, window: int) -> tuple[float, list[float], list[float]]:
    """Seconds for all, seconds for each window, and memory in MB after each window."""
    finished = asyncio.Event()
    count = 0
    marks: list[float] = []
    memory: list[float] = []

    def ran(_: int) -> None:
        nonlocal count
        count += 1
        if count % window == 0:
            marks.append(time.perf_counter())
            memory.append(_resident_mb())
        if count == jobs:
            finished.set()

    bench = Bench(url, limits, ran)
    async with bench.yard:
        started = time.perf_counter()
        async with bench.yard.worker(concurrency=width(url), queues=[QUEUE]):
            await finished.wait()
            while await bench.unsettled():  # noqa: ASYNC110 - the public counts are the judge, and they send no signal
                await asyncio.sleep(0.001)
            elapsed = time.perf_counter() - started
    assert count == jobs, f"{count} runs of {jobs} jobs"
    return elapsed, [after - before for before, after in zip([started, *marks], marks, strict=False)], memory


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def drain(url: str, limits: Limits, jobs: int) -> Outcome:
    elapsed, _, _ = run(work_off(url, limits, jobs, jobs))
    return Outcome({"jobs_per_second": jobs / elapsed})


def sustain(url: str, limits: Limits, jobs: int) -> Outcome:
    window = jobs // WINDOWS
    elapsed, seconds, memory = run(work_off(url, limits, jobs, window))
    rates = [window / each for each in seconds]
    return Outcome(
        {
            "jobs_per_second": jobs / elapsed,
            "last_over_first": sum(rates[-3:]) / sum(rates[:3]),
            "slowest_over_fastest": min(rates) / max(rates),
            "memory_growth": memory[-1] / memory[0],
            "memory_mb": memory[-1],
        },
        {"jobs_per_second": rates, "memory_mb": memory},
    )
