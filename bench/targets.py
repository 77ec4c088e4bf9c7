"""What the speed must be, in one place."""

from __future__ import annotations

from collections.abc import Mapping

from bench.contender import Benchmark, Engine
from bench.results import Row, Spread
from bench.target import Best, Target
from bench.targets_sandbox import SANDBOX_TARGETS
from bench.targets_sqlite import SQLITE_TARGETS

ASYNCIO_PEERS = {"taskiq", "SAQ", "BullMQ Python"}
DRAIN, ENQUEUE, LATENCY = Benchmark.DRAIN, Benchmark.ENQUEUE, Benchmark.LATENCY


def _is_python_peer(row: Row) -> bool:
    return row.contender not in {"jobyard", "raw-redis", "raw-postgres", "BullMQ Node"}


def _is_one_asyncio_caller(row: Row) -> bool:
    return row.contender in ASYNCIO_PEERS and row.key.endswith("/enqueue-1")


def _are_fifty_asyncio_callers(row: Row) -> bool:
    return row.contender in ASYNCIO_PEERS and row.key.endswith("/enqueue-50")


def _is_asyncio_peer(row: Row) -> bool:
    return row.contender in ASYNCIO_PEERS


def _is_bullmq(row: Row) -> bool:
    return row.contender.startswith("BullMQ")


def _is_pgqueuer(row: Row) -> bool:
    return row.contender == "pgqueuer"


PGQUEUER_BEST_RUN = Best(DRAIN, _is_pgqueuer, single_run=True)


def _on_every_server(engine: Engine) -> tuple[Target, ...]:
    own = f"{engine}/jobyard"
    return (
        Target("two processes, 200 µs of work: over one", f"{own}/scale-2", f"{own}/scale-1", at_least=1.6),
        Target("drain, limits on: over limits off", f"{own}/drain", f"{own}/drain-unlimited", at_least=0.75),
        Target("drain, 2 ms more per round trip: over none", f"{own}/drain-2ms", f"{own}/drain", at_least=0.7),
        Target(
            "drain beside a server with 1,000 open streams: over one with none",
            f"{own}/streams-1000",
            f"{own}/streams-0",
            at_least=0.9,
        ),
        Target(
            "1,000 schedules due in the same second: p99 lateness",
            f"{own}/schedule",
            figure="p99_ms",
            at_most=100,
            unit="ms",
        ),
        Target(
            "work per tick beside 100,000 schedules that are not due: over none",
            f"{own}/schedule-idle",
            figure="work_over_none",
            at_most=1.2,
        ),
        Target(
            "a million jobs due within one second: p99 of renewals, inserts and claims of another queue",
            f"{own}/due",
            figure="p99_ms",
            at_most=250,
            unit="ms",
        ),
        Target("webhooks of GitHub, 64 connections: p99", f"{own}/webhook", figure="p99_ms", at_most=250, unit="ms"),
        Target(
            "from a webhook to the creation of its pod, with room: p50",
            f"{own}/launch",
            figure="p50_ms",
            at_most=50,
            unit="ms",
        ),
        # For information.
        Target("drain, serial groups: over 10 per group", f"{own}/drain-serial", f"{own}/drain"),
        Target("drain, every record kept: over the last 100", f"{own}/drain-kept", f"{own}/drain"),
        Target(
            "a million jobs due: p99 of renewals in their queue", f"{own}/due", figure="same_queue_p99_ms", unit="ms"
        ),
        Target("enqueue: 50 callers over one", f"{own}/enqueue-50", f"{own}/enqueue-1"),
        Target("idle latency p50", f"{own}/latency", figure="p50_ms", unit="ms"),
    )


def _steps_over_dbos(engine: Engine) -> tuple[Target, ...]:
    return tuple(
        Target(f"durable steps, {about}: over DBOS", f"{engine}/jobyard/{row}", f"{engine}/DBOS/{row}", at_least=5)
        for about, row in (("one workflow", "steps-one"), ("workflows of 10", "steps-many"))
    )


TARGETS = {
    Engine.SQLITE: (*SQLITE_TARGETS, *_steps_over_dbos(Engine.SQLITE)),
    Engine.SANDBOX: SANDBOX_TARGETS,
    Engine.REDIS: (
        Target(
            "drain, limits on: over the best Python peer",
            "redis/jobyard/drain",
            Best(DRAIN, _is_python_peer),
            at_least=9,
        ),
        Target(
            "drain, limits on: over BullMQ on Node",
            "redis/jobyard/drain",
            Best(DRAIN, lambda row: row.contender == "BullMQ Node"),
            at_least=1.4,
        ),
        Target(
            "enqueue, one caller: over the best asyncio peer",
            "redis/jobyard/enqueue-1",
            Best(ENQUEUE, _is_one_asyncio_caller),
            at_least=1,
        ),
        Target(
            "enqueue, 50 callers: over one caller of the best asyncio peer",
            "redis/jobyard/enqueue-50",
            Best(ENQUEUE, _is_one_asyncio_caller),
            at_least=3,
        ),
        Target(
            "bulk insert: over the better BullMQ",
            "redis/jobyard/insert",
            Best(Benchmark.INSERT, _is_bullmq),
            at_least=1,
        ),
        Target(
            "idle latency p50: over the best asyncio peer",
            "redis/jobyard/latency",
            Best(LATENCY, _is_asyncio_peer),
            figure="p50_ms",
            at_most=1,
        ),
        Target("POST /v1/jobs: over a bare FastAPI route", "redis/jobyard/http", "redis/fastapi/http", at_least=0.6),
        *(
            Target(f"{name}: over Celery", f"redis/jobyard/{row}", f"redis/Celery canvas/{row}", at_least=5)
            for name, row in (
                ("child jobs of chains", "chains"),
                ("child jobs of a group", "group"),
                ("child jobs of a chord", "chord"),
            )
        ),
        Target(
            "child jobs of a map: over a flow of BullMQ on Node",
            "redis/jobyard/map",
            "redis/BullMQ Node/flow",
            at_least=1,
        ),
        *_on_every_server(Engine.REDIS),
        Target("POST /v1/jobs, 64 connections: p99", "redis/jobyard/http", figure="p99_ms", unit="ms"),
        Target(
            "enqueue, 50 callers: over 50 callers of the best asyncio peer",
            "redis/jobyard/enqueue-50",
            Best(ENQUEUE, _are_fifty_asyncio_callers),
        ),
        Target("enqueue, one caller: over raw RPUSH", "redis/jobyard/enqueue-1", "redis/raw-redis/enqueue-1"),
    ),
    Engine.POSTGRES: (
        Target("drain, limits on: over pgqueuer's best run", "postgres/jobyard/drain", PGQUEUER_BEST_RUN, at_least=1.6),
        Target(
            "drain, limits on, every record kept: over pgqueuer's best run",
            "postgres/jobyard/drain-kept",
            PGQUEUER_BEST_RUN,
            at_least=1.6,
        ),
        Target("bulk insert: over pgqueuer", "postgres/jobyard/insert", "postgres/pgqueuer/insert", at_least=1),
        Target(
            "idle latency p50: over pgqueuer",
            "postgres/jobyard/latency",
            "postgres/pgqueuer/latency",
            figure="p50_ms",
            at_most=0.5,
        ),
        Target(
            "sustained: last windows over first", "postgres/jobyard/sustained", figure="last_over_first", at_least=0.9
        ),
        Target(
            "sustained after ANALYZE with empty tables: last windows over first",
            "postgres/jobyard/sustained-misled",
            figure="last_over_first",
            at_least=0.9,
        ),
        Target(
            "sustained after ANALYZE with empty tables: over drain",
            "postgres/jobyard/sustained-misled",
            "postgres/jobyard/drain",
            at_least=0.9,
        ),
        *_steps_over_dbos(Engine.POSTGRES),
        *_on_every_server(Engine.POSTGRES),
        Target(
            "sustained with an old snapshot open: last windows over first",
            "postgres/jobyard/sustained-held",
            figure="last_over_first",
        ),
        Target(
            "drain, limits on: over the best other peer",
            "postgres/jobyard/drain",
            Best(DRAIN, lambda row: _is_python_peer(row) and not _is_pgqueuer(row)),
        ),
        Target(
            "enqueue, one caller: over the best peer",
            "postgres/jobyard/enqueue-1",
            Best(ENQUEUE, lambda row: _is_python_peer(row) and row.key.endswith("/enqueue-1")),
        ),
        Target("drain, limits on: over raw delete", "postgres/jobyard/drain", "postgres/raw-postgres/drain"),
    ),
}

# The row that the others of its benchmark are divided by, where it is not jobyard's first.
REFERENCES = {
    (Engine.SQLITE, Benchmark.INSERT): "sqlite/raw-sqlite/insert",
    (Engine.SANDBOX, Benchmark.START): "sandbox/python3/start",
    (Engine.SANDBOX, Benchmark.RUNS): "sandbox/python3/runs",
}


def reference(engine: Engine, benchmark: Benchmark, rows: Mapping[str, Row]) -> Row | None:
    """The chosen row, or the first measured one when that is not in this run; jobyard's come first."""
    chosen = rows.get(REFERENCES.get((engine, benchmark), ""))
    candidates = [row for row in [chosen, *rows.values()] if row is not None and row.benchmark is benchmark]
    return next((row for row in candidates if row.main is not None), None)


def ratios(engine: Engine, rows: Mapping[str, Row]) -> dict[str, Spread]:
    found: dict[str, Spread] = {}
    for row in rows.values():
        base = reference(engine, row.benchmark, rows)
        if row.main is not None and base is not None and base.main is not None:
            found[row.key] = row.main.over(base.main)
    return found
