"""The rows that jobyard has on every server."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bench.contender import Benchmark, Case, Durability, Order, Outcome
from bench.servers import settle
from bench.yard import draining, falling_due, http, inserting, latency, runners, scaling, scheduling, streams, workflows
from bench.yard.slow_line import slowed
from bench.yard.workload import CHUNK, LIMITED, SERIAL, UNLIMITED, Limits, fill_apart

PROMISE = "at least once, fenced, states"
ONCE = "each instant once, with any number of schedulers"
LIMITED_PROMISE = f"{PROMISE}, 10 per group"
PAUSE_SECONDS = (0.004, 0.016)  # as the peers
ADDED_SECONDS = 0.002
DRAIN_SHARE = 0.6
Measure = Callable[[Order], Outcome]


def _drain(order: Order, *, limits: Limits, added_seconds: float = 0.0) -> Outcome:
    fill_apart(order.url, limits, order.jobs)
    settle(order.url)
    if not added_seconds:
        return draining.drain(order.url, limits, order.jobs)
    with slowed(order.url, added_seconds) as url:
        return draining.drain(url, limits, order.jobs)


def _streamed(order: Order, *, count: int) -> Outcome:
    fill_apart(order.url, LIMITED, order.jobs)
    settle(order.url)
    return streams.drain(order.url, LIMITED, order.jobs, count)


def _scale(order: Order, *, processes: int) -> Outcome:
    fill_apart(order.url, LIMITED, order.jobs)
    settle(order.url)
    return scaling.scale(order.url, order.jobs, processes)


def _insert(order: Order) -> Outcome:
    return inserting.insert(order.url, order.jobs, CHUNK)


def _enqueue(order: Order, *, callers: int) -> Outcome:
    return inserting.enqueue(order.url, order.jobs, callers)


def _post(order: Order) -> Outcome:
    return http.post(order.url, order.jobs)


def _latency(order: Order) -> Outcome:
    return latency.inside(order.url, order.jobs, PAUSE_SECONDS)


def _schedule(order: Order) -> Outcome:
    return scheduling.due_at_once(order.url)


def _schedule_idle(order: Order) -> Outcome:
    return scheduling.beside_idle_ones(order.url, order.jobs)


def _due(order: Order) -> Outcome:
    return falling_due.due_at_once(order.url, order.jobs)


def _webhooks(order: Order) -> Outcome:
    return runners.receive(order.url, order.jobs)


def _launch(order: Order) -> Outcome:
    return runners.launch(order.url, order.jobs, order.folder)


def rows(durability: Durability) -> tuple[Case, ...]:
    def row(
        name: str,
        benchmark: Benchmark,
        about: str,
        measure: Measure,
        guarantee: str = PROMISE,
        share: float = 1.0,
        at_most: int | None = None,
        rounds: int | None = None,
    ) -> Case:
        return Case(name, benchmark, f"jobyard, {about}", durability, guarantee, measure, share, at_most, rounds)

    drain, enqueue = Benchmark.DRAIN, Benchmark.ENQUEUE
    kept = partial(_drain, limits=LIMITED.keeping_all())
    serial = partial(_drain, limits=SERIAL)
    slow = partial(_drain, limits=LIMITED, added_seconds=ADDED_SECONDS)
    return (
        row("drain", drain, "limits on", partial(_drain, limits=LIMITED), LIMITED_PROMISE, DRAIN_SHARE),
        row("drain-kept", drain, "limits on, every record kept", kept, LIMITED_PROMISE, DRAIN_SHARE),
        row("drain-unlimited", drain, "limits off", partial(_drain, limits=UNLIMITED), share=DRAIN_SHARE),
        row("drain-serial", drain, "serial groups", serial, f"{PROMISE}, 1 per group", DRAIN_SHARE),
        row("drain-2ms", drain, "limits on, 2 ms more per round trip", slow, LIMITED_PROMISE, DRAIN_SHARE),
        row("scale-1", Benchmark.SCALE, "one process", partial(_scale, processes=1), LIMITED_PROMISE, 0.4),
        row("scale-2", Benchmark.SCALE, "two processes", partial(_scale, processes=2), LIMITED_PROMISE, 0.4),
        row("insert", Benchmark.INSERT, "chunks of 1,000", _insert),
        row("enqueue-1", enqueue, "one caller", partial(_enqueue, callers=1), share=0.04),
        row("enqueue-50", enqueue, "50 callers at once", partial(_enqueue, callers=50), share=0.3),
        row("streams-0", Benchmark.STREAMS, "a server beside it", partial(_streamed, count=0), LIMITED_PROMISE),
        row("streams-1000", Benchmark.STREAMS, "1,000 streams open", partial(_streamed, count=1000), LIMITED_PROMISE),
        row("http", Benchmark.HTTP, "POST /v1/jobs", _post, share=0.2),
        row("latency", Benchmark.LATENCY, "inside one process", _latency, at_most=200),
        row("schedule", Benchmark.SCHEDULE, "no others", _schedule, ONCE, at_most=scheduling.DUE),
        row("schedule-idle", Benchmark.SCHEDULE, "others that are not due", _schedule_idle, ONCE, rounds=1),
        row("webhook", Benchmark.WEBHOOK, "POST /webhooks/github", _webhooks, runners.STORED, share=0.1),
        row("launch", Benchmark.LAUNCH, "room for every job", _launch, runners.STORED, at_most=100),
        *workflows.rows(durability),
        row("due", Benchmark.DUE, "beside a worker that takes them", _due, share=10, rounds=1),
    )
