"""litequeue, with its default and made power-safe."""

from __future__ import annotations

import time
from functools import partial
from importlib.metadata import version

from litequeue import LiteQueue

from bench.contender import Benchmark, Case, Contender, Durability, Order, Outcome
from bench.sqlite import checkpoint


def _noop(data: str) -> None:
    del data


def _drain(order: Order, *, synchronous: str | None) -> Outcome:
    path = order.folder / "litequeue.db"
    queue = LiteQueue(path)
    with queue.transaction():
        for number in range(order.jobs):
            queue.put(str(number))
    queue.close()
    checkpoint(path)

    queue = LiteQueue(path)
    if synchronous is not None:
        queue.conn.execute(f"PRAGMA synchronous={synchronous}")
    ran = 0
    started = time.perf_counter()
    while (message := queue.pop()) is not None:
        _noop(message.data)
        queue.done(message.message_id)
        ran += 1
    elapsed = time.perf_counter() - started
    assert ran == order.jobs
    return Outcome({"jobs_per_second": order.jobs / elapsed})


# `pop` sorts everything that waits, so its rate falls with the backlog: few jobs are kind to it.
CONTENDER = Contender(
    name="litequeue",
    version=version("litequeue"),
    cases=(
        Case(
            name="drain",
            benchmark=Benchmark.DRAIN,
            title="litequeue, synchronous full",
            durability=Durability.POWER_SAFE,
            guarantee="at least once",
            measure=partial(_drain, synchronous="FULL"),
            share=0.05,
        ),
        Case(
            name="drain-default",
            benchmark=Benchmark.DRAIN,
            title="litequeue, default (WAL, NORMAL)",
            durability=Durability.RECENT_LOST,
            guarantee="at least once",
            measure=partial(_drain, synchronous=None),
            share=0.05,
        ),
    ),
)
