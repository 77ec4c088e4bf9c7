"""huey on SQLite, by its own dequeue and execute."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

from huey import SqliteHuey

from bench.contender import Benchmark, Case, Contender, Durability, Order, Outcome
from bench.sqlite import checkpoint


def _open(order: Order, fsync: bool | None, handler: Callable[[], None]) -> tuple[Any, Any]:
    # No result store: a no-op has nothing to store, and huey is quicker without it.
    huey = SqliteHuey("bench", filename=str(order.folder / "huey.db"), fsync=fsync, results=False)
    return huey, huey.task(name="noop")(handler)


def _fill(order: Order) -> None:
    huey, noop = _open(order, False, lambda: None)
    for _ in range(order.jobs):
        noop()
    huey.storage.close()
    checkpoint(order.folder / "huey.db")


def _drain(order: Order, *, fsync: bool | None) -> Outcome:
    logging.disable(logging.CRITICAL)
    _fill(order)
    ran = 0

    def count() -> None:
        nonlocal ran
        ran += 1

    huey, _ = _open(order, fsync, count)
    # What a thread of its consumer does, without the thread. Against one consumer thread (medians of five): level when
    # power-safe, a tenth quicker with synchronous off, where the spreads overlap. More threads lose to the lock.
    started = time.perf_counter()
    while (task := huey.dequeue()) is not None:
        huey.execute(task)
    elapsed = time.perf_counter() - started
    assert ran == order.jobs
    return Outcome({"jobs_per_second": order.jobs / elapsed})


CONTENDER = Contender(
    name="huey",
    version=version("huey"),
    cases=(
        Case(
            name="drain",
            benchmark=Benchmark.DRAIN,
            title="huey, default (WAL, FULL)",
            durability=Durability.POWER_SAFE,
            guarantee="at most once",
            measure=partial(_drain, fsync=None),
            share=0.2,
        ),
        Case(
            name="drain-off",
            benchmark=Benchmark.DRAIN,
            title="huey, synchronous off",
            durability=Durability.UNSAFE,
            guarantee="at most once",
            measure=partial(_drain, fsync=False),
            share=0.2,
        ),
    ),
)
