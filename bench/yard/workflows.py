"""Durable steps and child jobs: from enqueueing workflows to the last result, with an idle worker."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from bench.contender import Benchmark, Case, Durability, Order, Outcome
from bench.yard.workload import run
from jobyard import Jobyard, WorkflowContext

LINKS = 10  # of a chain, and steps of a short workflow
# Workflows at work at once; child jobs need a slot only while they run.
CONCURRENCY = 64
# While there is room, a chain keeps its slot for a short link, and is not parked and replayed for each.
CHAINS_CONCURRENCY = 1000
WARM_UP = 3
KEPT, KEPT_PARENTS = 100, 100_000
PROMISE = "steps once, fenced, resumed by any worker"
CHILD_PROMISE = "at least once, fenced, each end once"


async def nothing() -> None:
    """The step."""


class Workflows:
    """A yard with a workflow of steps, and with a job to compose."""

    def __init__(self, url: str) -> None:
        self.yard = Jobyard(url)
        self.yard.queue("default", keep_completed=KEPT_PARENTS)  # their results are awaited one after the other
        self.yard.queue("children", keep_completed=KEPT)

        @self.yard.workflow
        async def steps(ctx: WorkflowContext, count: int) -> int:
            for _ in range(count):
                await ctx.step(nothing)
            return count

        @self.yard.job(queue="children")
        async def child(value: Any = None) -> int:
            return 1

        @self.yard.workflow
        async def mapped(ctx: WorkflowContext, count: int) -> int:
            return sum(await ctx.map(child.call, range(count)))

        self.steps, self.child, self.mapped = steps, child, mapped

    async def finish(self, jobs: Sequence[Any]) -> list[Any]:
        handles = await self.yard.enqueue_many(*jobs)
        return [await handle.result() for handle in handles]


Work = Callable[[Workflows, int], Awaitable[None]]


async def _timed(url: str, count: int, work: Work, concurrency: int) -> Outcome:
    bench = Workflows(url)
    async with bench.yard, bench.yard.worker(concurrency=concurrency):
        await work(bench, WARM_UP * LINKS)
        cpu, started = time.process_time(), time.perf_counter()
        await work(bench, count)
        elapsed, used = time.perf_counter() - started, time.process_time() - cpu
    return Outcome({"jobs_per_second": count / elapsed, "own_cpu_us": 1e6 * used / count})


async def _one(bench: Workflows, count: int) -> None:
    assert await bench.finish([bench.steps.call(count)]) == [count]


async def _many(bench: Workflows, count: int) -> None:
    workflows = count // LINKS
    assert await bench.finish([bench.steps.call(LINKS) for _ in range(workflows)]) == [LINKS] * workflows


async def _chains(bench: Workflows, count: int) -> None:
    link = bench.child
    chains = [bench.yard.chain(link.call(), *[link] * (LINKS - 1)) for _ in range(count // LINKS)]
    assert sum(await bench.finish(chains)) == len(chains)


async def _group(bench: Workflows, count: int) -> None:
    [results] = await bench.finish([bench.yard.group(*(bench.child.call() for _ in range(count)))])
    assert sum(results) == count


async def _chord(bench: Workflows, count: int) -> None:
    job = bench.yard.chord((bench.child.call() for _ in range(count)), bench.child)
    assert await bench.finish([job]) == [1]


async def _map(bench: Workflows, count: int) -> None:
    assert await bench.finish([bench.mapped.call(count)]) == [count]


WORK: dict[str, Work] = {
    "one": _one,
    "many": _many,
    "chains": _chains,
    "group": _group,
    "chord": _chord,
    "map": _map,
}


def measure(url: str, what: str, count: int, concurrency: int = CONCURRENCY) -> Outcome:
    """Steps or child jobs per second, and the processor time of this process for each."""
    return run(_timed(url, count, WORK[what], concurrency))


def _measure(order: Order, *, what: str) -> Outcome:
    url = order.url or f"sqlite:///{order.folder / 'jobyard.db'}"
    return measure(url, what, order.jobs, CHAINS_CONCURRENCY if what == "chains" else CONCURRENCY)


def rows(durability: Durability) -> tuple[Case, ...]:
    """The rows of workflows, the same on every store."""

    def row(name: str, benchmark: Benchmark, about: str, what: str, share: float) -> Case:
        promise = PROMISE if benchmark is Benchmark.STEPS else CHILD_PROMISE
        return Case(name, benchmark, f"jobyard, {about}", durability, promise, partial(_measure, what=what), share)

    steps, children = Benchmark.STEPS, Benchmark.CHILDREN
    return (
        row("steps-one", steps, "one workflow", "one", 0.02),
        row("steps-many", steps, "workflows of 10 steps", "many", 0.1),
        row("chains", children, "chains of 10", "chains", 0.03),
        row("group", children, "one group", "group", 0.1),
        row("chord", children, "one chord", "chord", 0.1),
        row("map", children, "one map", "map", 0.1),
    )
