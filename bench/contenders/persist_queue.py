"""persist-queue on SQLite: the queue with acknowledgement, and the plain one committing per job or per hundred."""

from __future__ import annotations

import time
from functools import partial
from importlib.metadata import version

from persistqueue import SQLiteAckQueue, SQLiteQueue

from bench.contender import Benchmark, Case, Contender, Durability, Order, Outcome
from bench.sqlite import checkpoint


def _noop(item: object) -> None:
    del item


def _drain_acknowledged(order: Order) -> Outcome:
    path = str(order.folder)
    queue = SQLiteAckQueue(path)
    queue._conn.execute("PRAGMA synchronous=OFF")  # the filling is not measured
    for number in range(order.jobs):
        queue.put(number)
    queue.close()
    checkpoint(order.folder / "data.db")

    queue = SQLiteAckQueue(path)
    last: int | None = None
    started = time.perf_counter()
    for _ in range(order.jobs):
        # By `next_in_order` it need not step over all acknowledged rows, and stays level as they grow.
        item = queue.get(block=False, raw=True, id=last, next_in_order=last is not None)
        _noop(item["data"])
        last = item["pqid"]
        queue.ack(id=last)
    elapsed = time.perf_counter() - started
    assert queue.acked_count() == order.jobs
    return Outcome({"jobs_per_second": order.jobs / elapsed})


def _drain_plain(order: Order, *, commit_every: int) -> Outcome:
    path = str(order.folder)
    queue = SQLiteQueue(path, auto_commit=False)
    for number in range(order.jobs):
        queue.put(number)
    queue.task_done()
    queue.close()
    checkpoint(order.folder / "data.db")

    queue = SQLiteQueue(path, auto_commit=commit_every == 1)
    started = time.perf_counter()
    for number in range(1, order.jobs + 1):
        _noop(queue.get(block=False))
        if number % commit_every == 0:
            queue.task_done()
    queue.task_done()
    elapsed = time.perf_counter() - started
    assert queue.qsize() == 0
    return Outcome({"jobs_per_second": order.jobs / elapsed})


CONTENDER = Contender(
    name="persist-queue",
    version=version("persist-queue"),
    cases=(
        Case(
            name="drain",
            benchmark=Benchmark.DRAIN,
            title="persist-queue, get and ack",
            durability=Durability.POWER_SAFE,
            guarantee="at least once",
            measure=_drain_acknowledged,
            share=0.1,
        ),
        Case(
            name="drain-plain",
            benchmark=Benchmark.DRAIN,
            title="persist-queue, get deletes",
            durability=Durability.POWER_SAFE,
            guarantee="at most once",
            measure=partial(_drain_plain, commit_every=1),
            share=0.1,
        ),
        Case(
            name="drain-batched",
            benchmark=Benchmark.DRAIN,
            title="persist-queue, task_done per 100",
            durability=Durability.POWER_SAFE,
            guarantee="at least once, single reader",
            measure=partial(_drain_plain, commit_every=100),
        ),
    ),
)
