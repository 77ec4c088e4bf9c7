"""From just before `enqueue` to the handler's first line, with an idle worker."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from statistics import quantiles

from bench.contender import Outcome
from bench.yard.workload import LIMITED, QUEUE, WARM_UP, Bench, run, width

PAUSE_SECONDS = (0.005, 0.04)
Pause = tuple[float, float]


async def _send(bench: Bench, samples: int, pause: Pause, *, warm_up: bool) -> None:
    """One job at a time after a random pause, so that no rhythm of the worker's waiting is hit or missed on purpose."""
    for number in range(samples + WARM_UP * warm_up):
        await asyncio.sleep(random.uniform(*pause))
        await bench.stamp.enqueue(0 if warm_up and number < WARM_UP else time.monotonic_ns())


def _outcome(nanoseconds: list[int]) -> Outcome:
    cuts = quantiles([each / 1e6 for each in nanoseconds], n=100, method="inclusive")
    return Outcome({"p50_ms": cuts[49], "p99_ms": cuts[98]})


async def _collect(url: str, samples: int, ready: Callable[[], None], pause: Pause | None) -> list[int]:
    """Work until all stamped jobs have run; the warm-up jobs carry no stamp."""
    finished = asyncio.Event()
    seen: list[int] = []

    def ran(nanoseconds: int) -> None:
        if nanoseconds:
            seen.append(nanoseconds)
        else:
            ready()
        if len(seen) == samples:
            finished.set()

    bench = Bench(url, LIMITED, ran)
    async with bench.yard, bench.yard.worker(concurrency=width(url), queues=[QUEUE]):
        if pause is not None:
            await _send(bench, samples, pause, warm_up=True)
        await finished.wait()
    return seen


def inside(url: str, samples: int, pause: Pause = PAUSE_SECONDS) -> Outcome:
    return _outcome(run(_collect(url, samples, lambda: None, pause)))


def _serve(url: str, samples: int, pipe: Connection) -> None:
    pipe.send(run(_collect(url, samples, lambda: pipe.send(None), None)))


def across(url: str, samples: int, pause: Pause = PAUSE_SECONDS) -> Outcome:
    here, there = multiprocessing.Pipe()
    worker = multiprocessing.get_context("spawn").Process(target=_serve, args=(url, samples, there))

    async def main() -> None:
        bench = Bench(url, LIMITED)
        async with bench.yard:
            worker.start()
            there.close()  # so that the end of the worker ends the waiting below
            await bench.stamp.enqueue(0)
            # Sending may begin only when the other process has run its first job.
            await asyncio.get_running_loop().run_in_executor(None, here.recv)
            await _send(bench, samples, pause, warm_up=False)

    run(main())
    seen: list[int] = here.recv()
    worker.join()
    return _outcome(seen)
