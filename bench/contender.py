"""What a contender is: a name, a version, and the cases it can be measured in."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec


class Durability(StrEnum):
    """What is left after the power failed; every one of them survives the death of the process."""

    POWER_SAFE = "power-safe"  # WAL, synchronous=FULL: a reported commit is on the disk
    RECENT_LOST = "recent lost"  # WAL, synchronous=NORMAL: the file is sound, the last commits may be gone
    UNSAFE = "unsafe"  # synchronous=OFF: the file itself may be damaged


class Benchmark(StrEnum):
    DRAIN = "drain"  # no-op jobs already inserted, one worker process, until all are settled
    SUSTAINED = "sustained"  # the same over ten times the jobs, in ten windows, with memory
    INSERT = "insert"  # many jobs at once
    ENQUEUE = "enqueue"  # one job per call, awaited
    LATENCY = "latency"  # idle worker: enqueue to first line of the handler

    @property
    def figure(self) -> str:
        """The figure that stands for a row in the table and the plot."""
        return "p50_ms" if self is Benchmark.LATENCY else "jobs_per_second"


class Outcome(msgspec.Struct, frozen=True):
    """One measured run: named figures, and series over its course."""

    figures: dict[str, float]
    series: dict[str, list[float]] = {}


@dataclass(frozen=True, slots=True)
class Order:
    """How many jobs, and an empty folder that is removed afterwards."""

    jobs: int
    folder: Path


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

    def jobs(self, base: int) -> int:
        wanted = max(100, round(base * self.share))
        return wanted if self.at_most is None else min(wanted, self.at_most)


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    version: str
    cases: tuple[Case, ...]

    def key(self, case: Case) -> str:
        return f"{self.name}/{case.name}"


@dataclass(frozen=True, slots=True)
class Unavailable:
    module: str
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


def checkpoint(path: Path) -> None:
    """Empty the write-ahead log left by the filling, so that nobody pays for it inside the measured time."""
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
