"""jobyard's sandbox: through its daemon alone, and through the API and the queue."""

from __future__ import annotations

from functools import partial
from importlib.metadata import version

from bench.contender import Benchmark, Case, Contender, Durability, Engine, Order, Outcome
from bench.yard import executing, sandbox

AT_ONCE = 4
CALLERS = 16
HELD = "namespaces, filter, limits, used once"
QUEUED = f"{HELD}; queued, power-safe"
# By their numbers in the catalogue of attacks.
BOMBS = (
    ("forks", "fork bombs", (1,)),
    ("memory", "memory bombs", (3,)),
    ("both", "fork and memory bombs", (1, 3)),
)
C_PROGRAM = '#include <stdio.h>\nint main(void) { puts("1"); }\n'


def _start(order: Order, *, pool: int | None) -> Outcome:
    return sandbox.start(order.jobs, pool=pool)


def _start_compiled(order: Order) -> Outcome:
    """Compiled once, in the warm-up, and taken from the cache from then on."""
    return sandbox.start(order.jobs, pool=None, language="c", source=C_PROGRAM)


def _sustained(order: Order) -> Outcome:
    return sandbox.sustained(order.jobs, AT_ONCE)


def _neighbours(order: Order, *, bombs: tuple[int, ...]) -> Outcome:
    return sandbox.beside_bombs(order.jobs, bombs)


def _execute(order: Order) -> Outcome:
    return executing.one_by_one(order.folder, order.jobs)


def _execute_many(order: Order) -> Outcome:
    return executing.many(order.folder, order.jobs, CALLERS)


kept, safe = Durability.NOTHING_KEPT, Durability.POWER_SAFE
start, runs, execute = Benchmark.START, Benchmark.RUNS, Benchmark.EXECUTE
CONTENDER = Contender(
    "jobyard",
    version("jobyard"),
    (
        Case("start-pool", start, "jobyard, warm pool", kept, HELD, partial(_start, pool=None), at_most=200),
        Case("start-demand", start, "jobyard, on demand", kept, HELD, partial(_start, pool=0), at_most=200),
        Case("start-compiled", start, "jobyard, a cached build of C", kept, HELD, _start_compiled, at_most=200),
        *(
            Case(
                f"neighbours-{kind}",
                Benchmark.NEIGHBOURS,
                f"jobyard, beside {words}",
                kept,
                HELD,
                partial(_neighbours, bombs=bombs),
                at_most=100,
            )
            for kind, words, bombs in BOMBS
        ),
        Case("runs", runs, "jobyard, the sandbox alone", kept, HELD, _sustained, at_most=1500),
        Case("execute", execute, "jobyard, POST /execute?wait=5", safe, QUEUED, _execute, at_most=200),
        Case("execute-many", runs, "jobyard, POST /execute?wait=5", safe, QUEUED, _execute_many, at_most=600),
    ),
    Engine.SANDBOX,
)
