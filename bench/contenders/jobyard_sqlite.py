"""jobyard on SQLite, through its public API only."""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from pathlib import Path

from bench.contender import Benchmark, Case, Contender, Durability, Order, Outcome
from bench.sqlite import checkpoint
from bench.yard import draining, falling_due, http, inserting, latency, runners, scheduling, streams, workflows
from bench.yard.workload import CHUNK, LIMITED, SERIAL, UNLIMITED, Limits, fill_apart


def _path(order: Order) -> Path:
    return order.folder / "jobyard.db"


def _url(order: Order, options: str = "") -> str:
    return f"sqlite:///{_path(order)}{options}"


def _drain(order: Order, *, limits: Limits, options: str = "") -> Outcome:
    url = _url(order, options)
    fill_apart(url, limits, order.jobs)
    checkpoint(_path(order))
    return draining.drain(url, limits, order.jobs)


def _sustain(order: Order) -> Outcome:
    fill_apart(_url(order), LIMITED, order.jobs)
    checkpoint(_path(order))
    outcome = draining.sustain(_url(order), LIMITED, order.jobs)
    return Outcome({**outcome.figures, "file_mb": _path(order).stat().st_size / 1e6}, outcome.series)


def _streamed(order: Order, *, count: int) -> Outcome:
    fill_apart(_url(order), LIMITED, order.jobs)
    checkpoint(_path(order))
    return streams.drain(_url(order), LIMITED, order.jobs, count)


def _insert(order: Order, *, chunk: int | None) -> Outcome:
    return inserting.insert(_url(order), order.jobs, chunk)


def _enqueue(order: Order, *, callers: int) -> Outcome:
    return inserting.enqueue(_url(order), order.jobs, callers)


def _post(order: Order) -> Outcome:
    return http.post(_url(order), order.jobs)


def _latency_inside(order: Order) -> Outcome:
    return latency.inside(_url(order), order.jobs)


def _latency_across(order: Order) -> Outcome:
    return latency.across(_url(order), order.jobs)


def _schedule(order: Order) -> Outcome:
    return scheduling.due_at_once(_url(order))


def _due(order: Order) -> Outcome:
    return falling_due.due_at_once(_url(order), order.jobs)


def _schedule_idle(order: Order) -> Outcome:
    return scheduling.beside_idle_ones(_url(order), order.jobs)


def _webhooks(order: Order) -> Outcome:
    return runners.receive(_url(order), order.jobs)


def _launch(order: Order) -> Outcome:
    return runners.launch(_url(order), order.jobs, order.folder)


PROMISE = "at least once, fenced, states"
ONCE = "each instant once, with any number of schedulers"

CONTENDER = Contender(
    name="jobyard",
    version=version("jobyard"),
    cases=(
        Case(
            name="drain",
            benchmark=Benchmark.DRAIN,
            title="jobyard, limits on",
            durability=Durability.POWER_SAFE,
            guarantee=f"{PROMISE}, 10 per group",
            measure=partial(_drain, limits=LIMITED),
        ),
        Case(
            name="drain-unlimited",
            benchmark=Benchmark.DRAIN,
            title="jobyard, limits off",
            durability=Durability.POWER_SAFE,
            guarantee=PROMISE,
            measure=partial(_drain, limits=UNLIMITED),
        ),
        Case(
            name="drain-serial",
            benchmark=Benchmark.DRAIN,
            title="jobyard, serial groups",
            durability=Durability.POWER_SAFE,
            guarantee=f"{PROMISE}, 1 per group",
            measure=partial(_drain, limits=SERIAL),
        ),
        Case(
            name="drain-off",
            benchmark=Benchmark.DRAIN,
            title="jobyard, limits on, synchronous off",
            durability=Durability.UNSAFE,
            guarantee=f"{PROMISE}, 10 per group",
            measure=partial(_drain, limits=LIMITED, options="?synchronous=off"),
        ),
        Case(
            name="sustained",
            benchmark=Benchmark.SUSTAINED,
            title="jobyard, limits on",
            durability=Durability.POWER_SAFE,
            guarantee=f"{PROMISE}, 10 per group",
            measure=_sustain,
            share=10,
        ),
        Case(
            name="insert",
            benchmark=Benchmark.INSERT,
            title="jobyard, one transaction",
            durability=Durability.POWER_SAFE,
            guarantee=PROMISE,
            measure=partial(_insert, chunk=None),
        ),
        Case(
            name="insert-chunks",
            benchmark=Benchmark.INSERT,
            title="jobyard, chunks of 1,000",
            durability=Durability.POWER_SAFE,
            guarantee=PROMISE,
            measure=partial(_insert, chunk=CHUNK),
        ),
        Case(
            name="enqueue-1",
            benchmark=Benchmark.ENQUEUE,
            title="jobyard, one caller",
            durability=Durability.POWER_SAFE,
            guarantee=PROMISE,
            measure=partial(_enqueue, callers=1),
            share=0.05,
        ),
        Case(
            name="enqueue-50",
            benchmark=Benchmark.ENQUEUE,
            title="jobyard, 50 callers at once",
            durability=Durability.POWER_SAFE,
            guarantee=PROMISE,
            measure=partial(_enqueue, callers=50),
            share=0.5,
        ),
        Case(
            name="streams-0",
            benchmark=Benchmark.STREAMS,
            title="jobyard, a server beside it",
            durability=Durability.POWER_SAFE,
            guarantee=f"{PROMISE}, 10 per group",
            measure=partial(_streamed, count=0),
        ),
        Case(
            name="streams-1000",
            benchmark=Benchmark.STREAMS,
            title="jobyard, 1,000 streams open",
            durability=Durability.POWER_SAFE,
            guarantee=f"{PROMISE}, 10 per group",
            measure=partial(_streamed, count=1000),
        ),
        Case(
            name="http",
            benchmark=Benchmark.HTTP,
            title="jobyard, POST /v1/jobs",
            durability=Durability.POWER_SAFE,
            guarantee=PROMISE,
            measure=_post,
            share=0.2,
        ),
        Case(
            name="latency-inside",
            benchmark=Benchmark.LATENCY,
            title="jobyard, inside one process",
            durability=Durability.POWER_SAFE,
            guarantee=PROMISE,
            measure=_latency_inside,
            at_most=200,
        ),
        Case(
            name="latency-across",
            benchmark=Benchmark.LATENCY,
            title="jobyard, across two processes",
            durability=Durability.POWER_SAFE,
            guarantee=PROMISE,
            measure=_latency_across,
            at_most=200,
        ),
        Case(
            name="schedule",
            benchmark=Benchmark.SCHEDULE,
            title="jobyard, no others",
            durability=Durability.POWER_SAFE,
            guarantee=ONCE,
            measure=_schedule,
            at_most=scheduling.DUE,
        ),
        Case(
            name="schedule-idle",
            benchmark=Benchmark.SCHEDULE,
            title="jobyard, others that are not due",
            durability=Durability.POWER_SAFE,
            guarantee=ONCE,
            measure=_schedule_idle,
            rounds=1,
        ),
        Case(
            name="webhook",
            benchmark=Benchmark.WEBHOOK,
            title="jobyard, POST /webhooks/github",
            durability=Durability.POWER_SAFE,
            guarantee=runners.STORED,
            measure=_webhooks,
            share=0.1,
        ),
        Case(
            name="launch",
            benchmark=Benchmark.LAUNCH,
            title="jobyard, room for every job",
            durability=Durability.POWER_SAFE,
            guarantee=runners.STORED,
            measure=_launch,
            at_most=100,
        ),
        *workflows.rows(Durability.POWER_SAFE),
        Case(
            name="due",
            benchmark=Benchmark.DUE,
            title="jobyard, beside a worker that takes them",
            durability=Durability.POWER_SAFE,
            guarantee=PROMISE,
            measure=_due,
            share=10,
            rounds=1,
        ),
    ),
)
