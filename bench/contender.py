"""What a contender is: a name, a version, an engine, and the cases it can be measured in."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec


class Engine(StrEnum):
    SQLITE = "sqlite"
    REDIS = "redis"
    POSTGRES = "postgres"
    SANDBOX = "sandbox"  # no store: the code runner, against other ways to start a program

    @property
    def spelled(self) -> str:
        return {"sqlite": "SQLite", "redis": "Redis", "postgres": "PostgreSQL", "sandbox": "The code runner"}[self]


class Durability(StrEnum):
    """What is left after the power failed; every one of them survives the death of the process."""

    POWER_SAFE = "power-safe"  # a reported commit is on the disk: SQLite's synchronous=FULL, PostgreSQL's defaults
    SECOND_LOST = "last second lost"  # Redis, append-only file synced every second
    RECENT_LOST = "recent lost"  # SQLite, WAL, synchronous=NORMAL: the file is sound, the last commits may be gone
    UNSAFE = "unsafe"  # SQLite, synchronous=OFF: the file itself may be damaged
    NOTHING_KEPT = "nothing is kept"  # a program runs and is gone


class Benchmark(StrEnum):
    DRAIN = "drain"  # no-op jobs already inserted, one worker process, until all are settled
    SCALE = "scale"  # 200 µs of work per job, one worker process or two
    SUSTAINED = "sustained"  # a long backlog in ten windows, with memory
    INSERT = "insert"  # many jobs at once
    ENQUEUE = "enqueue"  # one job per call, awaited
    HTTP = "http"  # one job per request over 64 kept connections, a server in a process of its own
    STREAMS = "streams"  # as drain, beside a server with many open streams of events
    LATENCY = "latency"  # idle worker: enqueue to first line of the handler
    SCHEDULE = "schedule"  # a thousand schedules due in the same second: from that to their jobs being in
    DUE = "due"  # very many delayed jobs due within one second: what other calls wait for meanwhile
    WEBHOOK = "webhook"  # one event of GitHub per request over 64 kept connections, no manager
    LAUNCH = "launch"  # idle runner manager: from the event of a job to the creation of its pod
    STEPS = "steps"  # durable steps of workflows: from enqueueing the workflows to the last result
    CHILDREN = "children"  # child jobs of workflows: from enqueueing their parents to the last result
    START = "start"  # one program after the other: from asking for it to the first byte that it prints
    NEIGHBOURS = "neighbours"  # one program after the other, beside bombs in all other slots
    EXECUTE = "execute"  # the same through the API and the queue: from the request to the whole answer
    RUNS = "runs"  # programs without a pause, as many at once as there are slots

    @property
    def figure(self) -> str:
        """The figure that stands for a row in the table and the plot."""
        of_times = {
            Benchmark.LATENCY: "p50_ms",
            Benchmark.SCHEDULE: "p99_ms",
            Benchmark.DUE: "p99_ms",
            Benchmark.WEBHOOK: "p99_ms",
            Benchmark.LAUNCH: "p50_ms",
            Benchmark.START: "p50_ms",
            Benchmark.NEIGHBOURS: "p50_ms",
            Benchmark.EXECUTE: "p50_ms",
        }
        return of_times.get(self, "jobs_per_second")

    @property
    def less_is_better(self) -> bool:
        return self.figure.endswith("_ms")


class Outcome(msgspec.Struct, frozen=True):
    """One measured run: named figures, and series over its course."""

    figures: dict[str, float]
    series: dict[str, list[float]] = {}


@dataclass(frozen=True, slots=True)
class Order:
    """How many jobs; an empty folder that is removed afterwards; an empty database, if the engine is a server."""

    jobs: int
    folder: Path
    url: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One row. `measure` runs in a fresh process and times only what it says it measures."""

    name: str  # unique within the contender
    benchmark: Benchmark
    title: str
    durability: Durability
    guarantee: str  # what a job is promised meanwhile: cheap promises are quick
    measure: Callable[[Order], Outcome]
    share: float = 1.0  # of --jobs: slow contenders get fewer, so that every run lasts seconds
    at_most: int | None = None
    rounds: int | None = None  # the longest cases are content with fewer than the others

    def jobs(self, base: int) -> int:
        wanted = max(100, round(base * self.share))
        return wanted if self.at_most is None else min(wanted, self.at_most)


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    version: str
    cases: tuple[Case, ...]
    engine: Engine = Engine.SQLITE
    environment: str | None = None  # in peers.toml; None: measured in our own

    def key(self, case: Case) -> str:
        return f"{self.engine}/{self.name}/{case.name}"


@dataclass(frozen=True, slots=True)
class Unavailable:
    what: str
    reason: str


def load(module: str) -> Contender:
    contender = importlib.import_module(f"bench.contenders.{module}").CONTENDER
    assert isinstance(contender, Contender)
    return contender


def discover() -> tuple[dict[str, Contender], list[Unavailable]]:
    """Every module in `bench/contenders`, by its name; one that cannot be imported here only loses its own rows."""
    from bench import contenders  # noqa: PLC0415 - they import this module

    found: dict[str, Contender] = {}
    missing: list[Unavailable] = []
    for module in sorted(info.name for info in pkgutil.iter_modules(contenders.__path__)):
        try:
            found[module] = load(module)
        except (ImportError, AttributeError) as error:
            missing.append(Unavailable(module, str(error)))
    return found, missing
