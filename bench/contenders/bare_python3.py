"""The bare interpreter: nothing is held, and it starts as fast as it can."""

from __future__ import annotations

import platform
import subprocess
from functools import partial

from bench.contender import Benchmark, Case, Contender, Durability, Engine, Order, Outcome
from bench.yard import starting

AT_ONCE = 2
GUARANTEE = "no limits, no isolation"


def _start(order: Order, *, words: tuple[str, ...]) -> Outcome:
    return starting.start(words, order.jobs)


def _sustained(order: Order, *, words: tuple[str, ...]) -> Outcome:
    return starting.sustained(words, order.jobs, AT_ONCE)


def cases(title: str, guarantee: str, words: tuple[str, ...]) -> tuple[Case, ...]:
    kept = Durability.NOTHING_KEPT
    return (
        Case("start", Benchmark.START, title, kept, guarantee, partial(_start, words=words), at_most=100),
        Case("runs", Benchmark.RUNS, title, kept, guarantee, partial(_sustained, words=words), at_most=300),
    )


def _version() -> str:
    done = subprocess.run([*starting.BARE[:3], "--version"], capture_output=True, text=True, check=False)
    return done.stdout.split()[-1] if done.returncode == 0 else platform.python_version()


CONTENDER = Contender("python3", _version(), cases("bare python3 -I -S", GUARANTEE, starting.BARE), Engine.SANDBOX)
