"""What the speed on SQLite must be."""

from __future__ import annotations

from bench.target import Target

SQLITE_TARGETS = (
    Target("drain, limits on: over huey, both power-safe", "sqlite/jobyard/drain", "sqlite/huey/drain", at_least=5),
    Target(
        "drain, limits on: over persist-queue with ack",
        "sqlite/jobyard/drain",
        "sqlite/persist-queue/drain",
        at_least=15,
    ),
    Target(
        "drain, limits on: over litequeue, both power-safe",
        "sqlite/jobyard/drain",
        "sqlite/litequeue/drain",
        at_least=15,
    ),
    Target("drain, limits on: over limits off", "sqlite/jobyard/drain", "sqlite/jobyard/drain-unlimited", at_least=0.8),
    Target("drain, limits on", "sqlite/jobyard/drain", at_least=40_000, unit="jobs/s"),
    Target("drain, serial groups", "sqlite/jobyard/drain-serial", at_least=30_000, unit="jobs/s"),
    Target("sustained: last windows over first", "sqlite/jobyard/sustained", figure="last_over_first", at_least=0.9),
    Target(
        "sustained: memory at the end over after the first window",
        "sqlite/jobyard/sustained",
        figure="memory_growth",
        at_most=1.1,
    ),
    Target(
        "bulk insert, one transaction: over raw SQLite",
        "sqlite/jobyard/insert",
        "sqlite/raw-sqlite/insert",
        at_least=0.5,
    ),
    Target("enqueue: 50 callers over one", "sqlite/jobyard/enqueue-50", "sqlite/jobyard/enqueue-1", at_least=5),
    Target("POST /v1/jobs: over a bare FastAPI route", "sqlite/jobyard/http", "sqlite/fastapi/http", at_least=0.6),
    Target(
        "idle latency p50, inside one process",
        "sqlite/jobyard/latency-inside",
        figure="p50_ms",
        at_most=1,
        unit="ms",
    ),
    Target(
        "idle latency p50, across two processes",
        "sqlite/jobyard/latency-across",
        figure="p50_ms",
        at_most=5,
        unit="ms",
    ),
    Target(
        "drain beside a server with 1,000 open streams: over one with none",
        "sqlite/jobyard/streams-1000",
        "sqlite/jobyard/streams-0",
        at_least=0.9,
    ),
    Target(
        "1,000 schedules due in the same second: p99 lateness",
        "sqlite/jobyard/schedule",
        figure="p99_ms",
        at_most=100,
        unit="ms",
    ),
    Target(
        "work per tick beside 100,000 schedules that are not due: over none",
        "sqlite/jobyard/schedule-idle",
        figure="work_over_none",
        at_most=1.2,
    ),
    Target(
        "a million jobs due within one second: p99 of renewals, inserts and claims of another queue",
        "sqlite/jobyard/due",
        figure="p99_ms",
        at_most=250,
        unit="ms",
    ),
    Target(
        "webhooks of GitHub, 64 connections: p99", "sqlite/jobyard/webhook", figure="p99_ms", at_most=250, unit="ms"
    ),
    Target(
        "from a webhook to the creation of its pod, with room: p50",
        "sqlite/jobyard/launch",
        figure="p50_ms",
        at_most=50,
        unit="ms",
    ),
    Target("POST /v1/jobs, 64 connections: p99", "sqlite/jobyard/http", figure="p99_ms", unit="ms"),
    Target(
        "a million jobs due: p99 of renewals in their queue",
        "sqlite/jobyard/due",
        figure="same_queue_p99_ms",
        unit="ms",
    ),
    # For information: the same race without a bound, and where a peer promises less and is quicker for it.
    Target("drain, limits on: over huey, both synchronous off", "sqlite/jobyard/drain-off", "sqlite/huey/drain-off"),
    Target(
        "drain, limits on: over persist-queue, get deletes",
        "sqlite/jobyard/drain",
        "sqlite/persist-queue/drain-plain",
    ),
    Target(
        "drain, limits on: over persist-queue, task_done per 100",
        "sqlite/jobyard/drain",
        "sqlite/persist-queue/drain-batched",
    ),
    Target("bulk insert, chunks of 1,000: over raw SQLite", "sqlite/jobyard/insert-chunks", "sqlite/raw-sqlite/insert"),
)
