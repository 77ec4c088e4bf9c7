"""Very many delayed jobs that become due within one second: what other calls wait for meanwhile."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Awaitable, Callable
from functools import partial
from multiprocessing.connection import Connection
from statistics import quantiles

from uuid_utils import uuid7

from bench.contender import Outcome
from bench.yard.workload import CHUNK, GROUPS, LIMITED, QUEUE, Bench, run, width
from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob
from jobyard.domain.outcome import Done
from jobyard.domain.state import Settlement, judge
from jobyard.ports.store import Store

OTHER = "other"
HELD = 50  # leases that are renewed, in each of the two queues
LEASE_SECONDS = 30.0
MEASURED_SECONDS = 20.0
PAUSE_SECONDS = 0.02
SPARE_SECONDS = 5.0
MARGIN = 3.0  # inserting slows down as the store fills
WORKER = "bench"


def _serve(url: str, pipe: Connection) -> None:
    async def main() -> None:
        bench = Bench(url, LIMITED)
        async with bench.yard, bench.yard.worker(concurrency=width(url), queues=[QUEUE]):
            pipe.send("ready")
            await asyncio.get_running_loop().run_in_executor(None, pipe.recv)

    run(main())


def _job(group: str, queue: str = QUEUE, run_at: Instant | None = None) -> NewJob:
    return NewJob(id=str(uuid7()), kind="noop", queue=queue, group=group, run_at=run_at)


async def _insert_delayed(store: Store, jobs: int) -> Instant:
    """All are due within the second that begins at the returned instant."""
    chunk = 10 * CHUNK

    def made(first: int, due_at: Instant) -> list[NewJob]:
        numbers = range(first, min(first + chunk, jobs))
        return [_job(GROUPS[number % len(GROUPS)], run_at=due_at + number * 1000 // jobs) for number in numbers]

    began = time.perf_counter()
    tomorrow = await store.now() + 86_400_000
    await store.insert([_job("g", "measure", tomorrow) for _ in range(chunk)])
    needed = (time.perf_counter() - began) * MARGIN * jobs / chunk + SPARE_SECONDS
    due_at = await store.now() + round(needed * 1000)
    for first in range(0, jobs, chunk):
        await store.insert(made(first, due_at))
    assert await store.now() < due_at, "the jobs were due before all were inserted"
    return due_at


async def _repeat(call: Callable[[], Awaitable[object]], until: float) -> list[float]:
    """Milliseconds of each call."""
    taken = []
    while time.perf_counter() < until:
        began = time.perf_counter()
        await call()
        taken.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(PAUSE_SECONDS)
    return taken


async def _measure(url: str, jobs: int, start_worker: Callable[[], None]) -> Outcome:
    bench = Bench(url, LIMITED)
    async with bench.yard:
        store = bench.yard.store
        held = {}
        for queue in (OTHER, QUEUE):
            await store.insert([_job(f"held-{number}", queue) for number in range(HELD)])
            response = await store.exchange(WORKER, [], [queue], HELD, LEASE_SECONDS)
            held[queue] = [lease.key for lease in response.leases]
        due_at = await _insert_delayed(store, jobs)
        start_worker()

        async def renew(queue: str) -> None:
            extended = await store.extend(WORKER, held[queue], LEASE_SECONDS)
            assert not extended.lost, f"{len(extended.lost)} leases were lost"

        async def insert() -> None:
            await store.insert([_job("g", OTHER)])

        async def claim() -> None:
            response = await store.exchange(WORKER, finished, [OTHER], 10, LEASE_SECONDS)
            finished[:] = [Settlement(lease.key, judge(lease, Done())) for lease in response.leases]

        finished: list[Settlement] = []
        while (left := due_at - await store.now()) > 0:
            await renew(OTHER)
            await renew(QUEUE)
            await asyncio.sleep(min(1.0, left / 1000))
        until = time.perf_counter() + MEASURED_SECONDS
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "renew": partial(renew, OTHER),
            "insert": insert,
            "claim": claim,
            "same_queue": partial(renew, QUEUE),
        }
        taken = await asyncio.gather(*(_repeat(call, until) for call in calls.values()))
    figures = {
        f"{name}_p99_ms": quantiles(each, n=100, method="inclusive")[98]
        for name, each in zip(calls, taken, strict=True)
    }
    of_other = [figures[f"{name}_p99_ms"] for name in ("renew", "insert", "claim")]
    return Outcome({"p99_ms": max(of_other), **figures, "worst_ms": max(map(max, taken))})


def due_at_once(url: str, jobs: int) -> Outcome:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    worker = context.Process(target=_serve, args=(url, there))

    def start() -> None:
        worker.start()
        here.recv()

    outcome = run(_measure(url, jobs, start))
    here.send("stop")
    worker.join()
    return outcome
