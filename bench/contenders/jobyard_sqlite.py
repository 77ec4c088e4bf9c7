"""jobyard on SQLite, through its public API only."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import resource
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import quantiles
from typing import Any, TypeVar

from bench.contender import Benchmark, Case, Contender, Durability, Order, Outcome, checkpoint
from jobyard import Context, Jobyard

QUEUE = "bench"
GROUPS = [f"group-{number:03}" for number in range(100)]
CONCURRENCY = 500
CHUNK = 1000
WINDOWS = 10
WARM_UP = 20
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Limits:
    max_running: int | None
    max_per_group: int | None


LIMITED = Limits(max_running=CONCURRENCY, max_per_group=10)
UNLIMITED = Limits(max_running=None, max_per_group=None)
SERIAL = Limits(max_running=CONCURRENCY, max_per_group=1)


def _path(order: Order) -> Path:
    return order.folder / "jobyard.db"


def _url(order: Order, options: str = "") -> str:
    return f"sqlite:///{_path(order)}{options}"


def _run(main: Coroutine[Any, Any, Result]) -> Result:
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if find_spec("uvloop") is not None:
        import uvloop  # noqa: PLC0415 - optional

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


class Bench:
    """A yard with one queue and its two handlers; `ran` is called for each job as its handler starts."""

    def __init__(self, url: str, limits: Limits, ran: Callable[[int], None] = lambda sent: None) -> None:
        self.yard = Jobyard(url)
        self.yard.queue(
            QUEUE,
            max_running=limits.max_running,
            max_per_group=limits.max_per_group,
            keep_completed=100,
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

    _run(main())


def _fill_apart(url: str, limits: Limits, order: Order) -> None:
    """In a process of its own, so that the worker's memory is the worker's."""
    process = multiprocessing.get_context("spawn").Process(target=fill, args=(url, limits, order.jobs))
    process.start()
    process.join()
    assert process.exitcode == 0, "the jobs could not be inserted"
    checkpoint(_path(order))


async def _work_off(url: str, limits: Limits, jobs: int, window: int) -> tuple[float, list[float], list[float]]:
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
        async with bench.yard.worker(concurrency=CONCURRENCY, queues=[QUEUE]):
            await finished.wait()
            while await bench.unsettled():  # noqa: ASYNC110 - the public counts are the judge, and they send no signal
                await asyncio.sleep(0.001)
            elapsed = time.perf_counter() - started
    assert count == jobs, f"{count} runs of {jobs} jobs"
    return elapsed, [after - before for before, after in zip([started, *marks], marks, strict=False)], memory


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def _drain(order: Order, *, limits: Limits, options: str = "") -> Outcome:
    url = _url(order, options)
    _fill_apart(url, limits, order)
    elapsed, _, _ = _run(_work_off(url, limits, order.jobs, order.jobs))
    return Outcome({"jobs_per_second": order.jobs / elapsed})


def _sustain(order: Order) -> Outcome:
    window = order.jobs // WINDOWS
    _fill_apart(_url(order), LIMITED, order)
    elapsed, seconds, memory = _run(_work_off(_url(order), LIMITED, order.jobs, window))
    rates = [window / each for each in seconds]
    return Outcome(
        {
            "jobs_per_second": order.jobs / elapsed,
            "last_over_first": sum(rates[-3:]) / sum(rates[:3]),
            "slowest_over_fastest": min(rates) / max(rates),
            "memory_growth": memory[-1] / memory[0],
            "memory_mb": memory[-1],
            "file_mb": _path(order).stat().st_size / 1e6,
        },
        {"jobs_per_second": rates, "memory_mb": memory},
    )


def _insert(order: Order, *, chunk: int | None) -> Outcome:
    """From the caller's arguments to the last commit: making the calls is inside the time."""

    async def main() -> float:
        bench = Bench(_url(order), LIMITED)
        async with bench.yard:
            await bench.insert(WARM_UP, WARM_UP)
            started = time.perf_counter()
            await bench.insert(order.jobs, chunk or order.jobs)
            return time.perf_counter() - started

    return Outcome({"jobs_per_second": order.jobs / _run(main())})


def _enqueue(order: Order, *, callers: int) -> Outcome:
    async def main() -> float:
        bench = Bench(_url(order), LIMITED)

        async def call(jobs: int) -> None:
            for number in range(jobs):
                await bench.grouped[number % len(GROUPS)].enqueue()

        async with bench.yard:
            await call(WARM_UP)
            started = time.perf_counter()
            await asyncio.gather(*(call(order.jobs // callers) for _ in range(callers)))
            return time.perf_counter() - started

    return Outcome({"jobs_per_second": order.jobs // callers * callers / _run(main())})


async def _send(bench: Bench, samples: int, *, warm_up: bool) -> None:
    """One job at a time after a random pause, so that no rhythm of the worker's waiting is hit or missed on purpose."""
    for number in range(samples + WARM_UP * warm_up):
        await asyncio.sleep(random.uniform(0.005, 0.04))
        await bench.stamp.enqueue(0 if warm_up and number < WARM_UP else time.monotonic_ns())


def _latency(nanoseconds: list[int]) -> Outcome:
    cuts = quantiles([each / 1e6 for each in nanoseconds], n=100, method="inclusive")
    return Outcome({"p50_ms": cuts[49], "p99_ms": cuts[98]})


async def _collect(url: str, samples: int, ready: Callable[[], None], *, send: bool) -> list[int]:
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
    async with bench.yard, bench.yard.worker(concurrency=CONCURRENCY, queues=[QUEUE]):
        if send:
            await _send(bench, samples, warm_up=True)
        await finished.wait()
    return seen


def _latency_inside(order: Order) -> Outcome:
    return _latency(_run(_collect(_url(order), order.jobs, lambda: None, send=True)))


def _serve(url: str, samples: int, pipe: Connection) -> None:
    pipe.send(_run(_collect(url, samples, lambda: pipe.send(None), send=False)))


def _latency_across(order: Order) -> Outcome:
    here, there = multiprocessing.Pipe()
    worker = multiprocessing.get_context("spawn").Process(target=_serve, args=(_url(order), order.jobs, there))

    async def main() -> None:
        bench = Bench(_url(order), LIMITED)
        async with bench.yard:
            worker.start()
            there.close()  # so that the end of the worker ends the waiting below
            await bench.stamp.enqueue(0)
            # Sending may begin only when the other process has run its first job.
            await asyncio.get_running_loop().run_in_executor(None, here.recv)
            await _send(bench, order.jobs, warm_up=False)

    _run(main())
    seen: list[int] = here.recv()
    worker.join()
    return _latency(seen)


PROMISE = "at least once, fenced, states"

CONTENDER = Contender(
    name="jobyard",
    version=version("jobyard"),
    cases=(
        Case(
            name="drain",
            benchmark=Benchmark.DRAIN,
            title="jobyard, limits on",
            durability=Durability.POWER_SAFE,
            guarantee=f"{PROMISE}, 10 per group",
            measure=partial(_drain, limits=LIMITED),
        ),
        Case(
            name="drain-unlimited",
            benchmark=Benchmark.DRAIN,
            title="jobyard, limits off",
            durability=Durability.POWER_SAFE,
            guarantee=PROMISE,
            measure=partial(_drain, limits=UNLIMITED),
        ),
        Case(
            name="drain-serial",
            benchmark=Benchmark.DRAIN,
            title="jobyard, serial groups",
            durability=Durability.POWER_SAFE,
            guarantee=f"{PROMISE}, 1 per group",
            measure=partial(_drain, limits=SERIAL),
        ),
        Case(
            name="drain-off",
            benchmark=Benchmark.DRAIN,
            title="jobyard, limits on, synchronous off",
            durability=Durability.UNSAFE,
            guarantee=f"{PROMISE}, 10 per group",
            measure=partial(_drain, limits=LIMITED, options="?synchronous=off"),
        ),
        Case(
            name="sustained",
            benchmark=Benchmark.SUSTAINED,
            title="jobyard, limits on",
            durability=Durability.POWER_SAFE,
            guarantee=f"{PROMISE}, 10 per group",
            measure=_sustain,
            share=10,
        ),
        Case(
            name="insert",
            benchmark=Benchmark.INSERT,
            title="jobyard, one transaction",
            durability=Durability.POWER_SAFE,
            guarantee=PROMISE,
            measure=partial(_insert, chunk=None),
        ),
        Case(
            name="insert-chunks",
            benchmark=Benchmark.INSERT,
            title="jobyard, chunks of 1,000",
            durability=Durability.POWER_SAFE,
            guarantee=PROMISE,
            measure=partial(_insert, chunk=CHUNK),
        ),
        Case(
            name="enqueue-1",
            benchmark=Benchmark.ENQUEUE,
            title="jobyard, one caller",
            durability=Durability.POWER_SAFE,
            guarantee=PROMISE,
            measure=partial(_enqueue, callers=1),
            share=0.05,
        ),
        Case(
            name="enqueue-50",
            benchmark=Benchmark.ENQUEUE,
            title="jobyard, 50 callers at once",
            durability=Durability.POWER_SAFE,
            guarantee=PROMISE,
            measure=partial(_enqueue, callers=50),
            share=0.5,
        ),
        Case(
            name="latency-inside",
            benchmark=Benchmark.LATENCY,
            title="jobyard, inside one process",
            durability=Durability.POWER_SAFE,
            guarantee=PROMISE,
            measure=_latency_inside,
            at_most=200,
        ),
        Case(
            name="latency-across",
            benchmark=Benchmark.LATENCY,
            title="jobyard, across two processes",
            durability=Durability.POWER_SAFE,
            guarantee=PROMISE,
            measure=_latency_across,
            at_most=200,
        ),
    ),
)
