"""jobyard on PostgreSQL, with the long rows in which the first fast designs broke down."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Any

import asyncpg

from bench.contender import Benchmark, Case, Contender, Durability, Engine, Order, Outcome
from bench.servers import analyze, settle
from bench.yard import draining
from bench.yard.rows import LIMITED_PROMISE, Measure, rows
from bench.yard.workload import LIMITED, fill_apart


def _sustain(order: Order) -> Outcome:
    fill_apart(order.url, LIMITED, order.jobs)
    settle(order.url)
    return draining.sustain(order.url, LIMITED, order.jobs)


def _sustain_misled(order: Order) -> Outcome:
    """The statistics say that all tables are empty, and are not updated."""
    fill_apart(order.url, LIMITED, 0)
    analyze(order.url)
    fill_apart(order.url, LIMITED, order.jobs)
    settle(order.url, analyze=False)
    return draining.sustain(order.url, LIMITED, order.jobs)


def _sustain_held(order: Order) -> Outcome:
    """An old snapshot keeps every dead row in place."""
    fill_apart(order.url, LIMITED, order.jobs)
    settle(order.url)
    with asyncio.Runner() as other:
        connection = other.run(_hold_snapshot(order.url))
        try:
            return draining.sustain(order.url, LIMITED, order.jobs)
        finally:
            other.run(connection.close())


async def _hold_snapshot(url: str) -> Any:
    connection = await asyncpg.connect(url)
    await connection.transaction(isolation="repeatable_read").start()
    await connection.execute("SELECT 1")  # the snapshot is taken by the first statement
    return connection


def _long(name: str, about: str, measure: Measure, share: float) -> Case:
    return Case(
        name=name,
        benchmark=Benchmark.SUSTAINED,
        title=f"jobyard, {about}",
        durability=Durability.POWER_SAFE,
        guarantee=LIMITED_PROMISE,
        measure=measure,
        share=share,
        rounds=3,
    )


CONTENDER = Contender(
    "jobyard",
    version("jobyard"),
    (
        *rows(Durability.POWER_SAFE),
        _long("sustained", "limits on", _sustain, 10),
        _long("sustained-misled", "after ANALYZE with empty tables", _sustain_misled, 1),
        _long("sustained-held", "with an old snapshot open", _sustain_held, 0.5),
    ),
    Engine.POSTGRES,
)
