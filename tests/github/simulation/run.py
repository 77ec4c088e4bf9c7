"""Run seeds of the simulation: `python -m tests.github.simulation.run --store memory --from 0 --count 1000`."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import os
import random
import sys
import tempfile
import time
import unittest.mock
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from tests.conformance.stores import STORES
from tests.github.simulation.scenario import KINDS, Effect, Scenario, draw, with_crash
from tests.github.simulation.virtual_loop import VirtualClock, VirtualLoop, run_virtually
from tests.github.simulation.world import World

from jobyard.ports.store import Store

T = TypeVar("T")
POLL_SECONDS = 4.0
HASHING = {**os.environ, "PYTHONHASHSEED": "0"}


Act = Callable[[World], Coroutine[Any, Any, list[str]]]


async def simulate(scenario: Scenario, engine: str, folder: Path, act: Act) -> list[str]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    clock = VirtualClock(loop)
    opened: list[Store] = []

    async def open_store() -> Store:
        """An empty store, instead of the one before: its transactions would keep the new one from being emptied."""
        if opened:
            await opened[-1].close()
        own = folder / f"{scenario.seed}-{len(opened)}"
        own.mkdir()
        store = STORES[engine](own, clock)  # type: ignore[arg-type]  # a clock that moves by itself
        await store.open()
        opened.append(store)
        return store

    async def in_real_time(call: Callable[[], Awaitable[object]]) -> object:
        loop.calls_in_flight += 1
        try:
            return await call()
        finally:
            loop.calls_in_flight -= 1

    await in_real_time(open_store)
    world = World(scenario, open_store, opened[0], clock)
    try:
        async with asyncio.timeout(48 * 3600):
            return await act(world)
    finally:
        await in_real_time(opened[-1].close)


def calls_until_rest() -> int:
    """How many calls the manager makes in the scenario `with_crash`, if it does not crash."""
    made = 0

    async def act(world: World) -> list[str]:
        nonlocal made
        problems = await world.run()
        made = world.replicas[0].boundary.calls
        return problems

    scenario = msgspec.structs.replace(with_crash(0, Effect.NONE), crashes=())
    assert run_scenario(scenario, "memory", act) == []
    return made


def run_seed(seed: int, kind: str | None, engine: str) -> list[str]:
    return run_scenario(draw(seed, kind), engine)


def run_scenario(scenario: Scenario, engine: str, act: Act = World.run) -> list[str]:
    """The properties that did not hold; `act` says what happens, if not what the scenario plans."""
    random.seed(scenario.seed)
    numbers = itertools.count(1)
    ids = random.Random(scenario.seed)
    # Ids must follow from the seed too: names of runners are made of them.
    made = lambda: f"0199{next(numbers):04x}-0000-7000-8000-{ids.getrandbits(48):012x}"  # noqa: E731
    patch = unittest.mock.patch
    with (
        tempfile.TemporaryDirectory() as folder,
        patch("jobyard.github.tickets.uuid7", made),
        patch("jobyard.github.executor.uuid7", made),
        patch("jobyard.github.warm_pool.uuid7", made),
        # As often as real runners ask, most of the time of a run would be theirs.
        patch("jobyard.github.warm_delivery.POLL_SECONDS", POLL_SECONDS),
    ):
        found: list[str] = without_collection(lambda: run_virtually(simulate(scenario, engine, Path(folder), act)))
        return found


def without_collection(run: Callable[[], T]) -> T:
    """Collect garbage once at the end, and only what the run made: it took a sixth of the time of all seeds."""
    gc.freeze()
    gc.disable()
    try:
        return run()
    finally:
        gc.collect()
        gc.unfreeze()
        gc.enable()


def record_in_virtual_time(*args: Any, **kwargs: Any) -> logging.LogRecord:
    record = logging.LogRecord(*args, **kwargs)
    try:
        record.seconds = asyncio.get_running_loop().time()
    except RuntimeError:
        record.seconds = 0.0
    return record


@click.command()
@click.option("--store", "engine", type=click.Choice(sorted(STORES)), default="memory", show_default=True)
@click.option("--from", "first", default=0, show_default=True)
@click.option("--count", default=100, show_default=True)
@click.option("--kind", type=click.Choice(KINDS), help="Only faults of this kind.")
@click.option("--log", is_flag=True, help="Print what the manager logs.")
def main(engine: str, first: int, count: int, kind: str | None, log: bool) -> None:
    """Print the seeds that fail; the exit code is their number, at most 100."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of a set must not differ from run to run.
        os.execve(sys.executable, [sys.executable, "-m", "tests.github.simulation.run", *sys.argv[1:]], HASHING)
    logging.basicConfig(level=logging.INFO if log else logging.CRITICAL, format="%(seconds)8.2f %(message)s")
    logging.setLogRecordFactory(record_in_virtual_time)
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    began, failed = time.monotonic(), 0
    with click.progressbar(range(first, first + count), label=engine, file=sys.stderr, show_pos=True) as seeds:
        for seed in seeds:
            problems = run_seed(seed, kind, engine)
            if problems:
                failed += 1
                click.echo(f"seed {seed} ({draw(seed, kind).faults}):")
                for problem in problems[:10]:
                    click.echo(f"  {problem}")
    click.echo(f"{count - failed} passed, {failed} failed in {time.monotonic() - began:.1f} s ({engine})")
    raise SystemExit(min(failed, 100))


if __name__ == "__main__":
    main()
