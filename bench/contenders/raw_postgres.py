"""PostgreSQL with nothing around it: what claiming, inserting and committing cost here."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import asyncpg

from bench.contender import Benchmark, Case, Contender, Durability, Engine, Order, Outcome
from bench.servers import settle
from bench.yard.workload import CHUNK, run

CREATE = "CREATE TABLE IF NOT EXISTS raw (id bigint PRIMARY KEY, payload bytea NOT NULL)"
INSERT = "INSERT INTO raw VALUES ($1, $2)"
# The cursor spares it the dead rows in front.
CLAIM = """
DELETE FROM raw WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM raw WHERE id > $1 ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED
)) RETURNING id, payload
"""
Connection = Any  # asyncpg tells no types


async def _copy(connection: Connection, jobs: int) -> None:
    for start in range(0, jobs, CHUNK):
        records = [(number, b"{}") for number in range(start, min(start + CHUNK, jobs))]
        await connection.copy_records_to_table("raw", records=records)


async def _insert(connection: Connection, jobs: int) -> None:
    statement = await connection.prepare(INSERT)
    for number in range(jobs):
        await statement.fetch(number, b"{}")


async def _claim(connection: Connection, _: int) -> None:
    statement = await connection.prepare(CLAIM)
    last = -1
    while rows := await statement.fetch(last):
        last = max(row["id"] for row in rows)


async def _timed(url: str, work: Callable[[Connection, int], Awaitable[None]], jobs: int) -> float:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(CREATE)
        started = time.perf_counter()
        await work(connection, jobs)
        return time.perf_counter() - started
    finally:
        await connection.close()


def _measure(order: Order, *, work: Callable[[Connection, int], Awaitable[None]]) -> Outcome:
    if work is _claim:
        run(_timed(order.url, _copy, order.jobs))
        settle(order.url)
    return Outcome({"jobs_per_second": order.jobs / run(_timed(order.url, work, order.jobs))})


def _row(benchmark: Benchmark, name: str, about: str, measure: partial[Outcome], share: float = 1.0) -> Case:
    return Case(name, benchmark, f"raw PostgreSQL, {about}", Durability.POWER_SAFE, "rows only", measure, share)


CONTENDER = Contender(
    "raw-postgres",
    version("asyncpg"),
    (
        _row(Benchmark.DRAIN, "drain", "delete 100 per commit", partial(_measure, work=_claim)),
        _row(Benchmark.INSERT, "insert", "COPY of 1,000", partial(_measure, work=_copy)),
        _row(Benchmark.ENQUEUE, "enqueue-1", "INSERT one by one", partial(_measure, work=_insert), 0.05),
    ),
    Engine.POSTGRES,
)
