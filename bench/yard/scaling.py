"""The same backlog with real work, by one worker process or by several."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from multiprocessing.connection import Connection

from bench.contender import Outcome
from bench.yard.workload import LIMITED, QUEUE, Bench, run

WORK_SECONDS = 200e-6
CONCURRENCY = 400  # two workers fit under the limits, so that neither keeps jobs from the other
LOOK_SECONDS = 0.02


def _toil(_: int) -> None:
    """Of this thread's own processor time: waiting for a core is not work."""
    until = time.thread_time() + WORK_SECONDS
    while time.thread_time() < until:
        pass


def _serve(url: str, pipe: Connection) -> None:
    async def main() -> None:
        bench = Bench(url, LIMITED, _toil)
        async with bench.yard:
            pipe.send("ready")
            await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
            async with bench.yard.worker(concurrency=CONCURRENCY, queues=[QUEUE]):
                await asyncio.get_running_loop().run_in_executor(None, pipe.recv)

    run(main())


def scale(url: str, jobs: int, processes: int) -> Outcome:
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(processes)]
    workers = [context.Process(target=_serve, args=(url, there)) for _, there in pipes]

    async def main() -> float:
        bench = Bench(url, LIMITED)
        async with bench.yard:
            for worker, (here, there) in zip(workers, pipes, strict=True):
                worker.start()
                there.close()
                here.recv()
            started = time.perf_counter()
            for here, _ in pipes:
                here.send("go")
            while await bench.unsettled():  # noqa: ASYNC110 - the public counts send no signal
                await asyncio.sleep(LOOK_SECONDS)
            return time.perf_counter() - started

    elapsed = run(main())
    for here, _ in pipes:
        here.send("stop")
    for worker in workers:
        worker.join()
    return Outcome({"jobs_per_second": jobs / elapsed})
