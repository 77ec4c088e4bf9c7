"""Redis with nothing around it: what a round trip and a bulk push cost here."""

from __future__ import annotations

import time
from importlib.metadata import version

from redis.asyncio import Redis

from bench.contender import Benchmark, Case, Contender, Durability, Engine, Order, Outcome
from bench.yard.workload import CHUNK, run

KEY = "raw"
VALUE = b"{}"


def _push_one_by_one(order: Order) -> Outcome:
    async def main() -> float:
        async with Redis.from_url(order.url) as client:
            await client.ping()
            started = time.perf_counter()
            for _ in range(order.jobs):
                await client.rpush(KEY, VALUE)
            return time.perf_counter() - started

    return Outcome({"jobs_per_second": order.jobs / run(main())})


def _push_in_bulk(order: Order) -> Outcome:
    async def main() -> float:
        async with Redis.from_url(order.url) as client:
            await client.ping()
            started = time.perf_counter()
            for _ in range(0, order.jobs, CHUNK):
                await client.rpush(KEY, *[VALUE] * CHUNK)
            return time.perf_counter() - started

    return Outcome({"jobs_per_second": order.jobs / run(main())})


def _row(name: str, benchmark: Benchmark, title: str, share: float) -> Case:
    measure = _push_in_bulk if benchmark is Benchmark.INSERT else _push_one_by_one
    return Case(name, benchmark, title, Durability.SECOND_LOST, "values only", measure, share)


CONTENDER = Contender(
    "raw-redis",
    version("redis"),
    (
        _row("enqueue-1", Benchmark.ENQUEUE, "raw Redis, RPUSH one by one", 0.1),
        _row("insert", Benchmark.INSERT, "raw Redis, RPUSH of 1,000", 3),
    ),
    Engine.REDIS,
)
