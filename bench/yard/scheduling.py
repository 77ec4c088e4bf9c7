"""Many schedules due in the same second: how late their jobs are inserted, and what those that are not due cost."""

from __future__ import annotations

import asyncio
import time
from statistics import quantiles

import msgspec

from bench.contender import Outcome
from bench.yard.workload import QUEUE, run
from jobyard import Jobyard
from jobyard.domain.events import Event, TickDecided
from jobyard.domain.instant import Instant
from jobyard.domain.schedule import Schedule, Verdict
from jobyard.operations.schedule_options import make_schedule
from jobyard.operations.schedules import COLLECTION
from jobyard.ports.store import Store
from jobyard.scheduler.scheduler import Scheduler

DUE = 1000
EVERY_SECONDS = 3
INSTANTS = 4
AT_ONCE = 200


class Ticks:
    """An observer that keeps how late each tick was inserted."""

    wants_each_job = True

    def __init__(self) -> None:
        self.late: dict[Instant, list[float]] = {}

    def observe(self, event: Event) -> None:
        if isinstance(event, TickDecided) and event.verdict is Verdict.FIRED:
            self.late.setdefault(event.at, []).append(event.late_seconds)

    def whole(self) -> dict[Instant, list[float]]:
        return {at: late for at, late in self.late.items() if len(late) == DUE}


async def _define(store: Store, name: str, expression: str, count: int) -> None:
    """As the service does, without telling of each: the scheduler comes later and reads all."""
    now = await store.now()
    words = {"kind": "noop", "queue": QUEUE, "overlap": "allow", "missed": "skip", "expression": expression}

    async def one(number: int) -> None:
        made: Schedule = msgspec.structs.replace(
            make_schedule({"name": f"{name}-{number:06}", **words}), since=now, revision=now, created_at=now
        )
        await store.put(COLLECTION, made.name, msgspec.json.encode(made))
        await store.arm(made.name, made.revision, made.since)

    for start in range(0, count, AT_ONCE):
        await asyncio.gather(*(one(number) for number in range(start, min(start + AT_ONCE, count))))


async def _watch(store: Store) -> tuple[list[float], float]:
    """How late each tick was, in ms, and the processor time of one, in µs; the first instant is to warm up."""
    ticks = Ticks()
    scheduler = Scheduler(store, ticks)
    await scheduler.start()
    while not scheduler.is_loaded:  # noqa: ASYNC110 - waits for the store
        await asyncio.sleep(0.05)
    ticks.late.clear()
    while len(ticks.whole()) < 1:  # noqa: ASYNC110 - waits for the clock
        await asyncio.sleep(0.05)
    began = time.process_time()
    while len(ticks.whole()) < 1 + INSTANTS:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    spent = time.process_time() - began
    await scheduler.stop()
    late = [each * 1000 for at in sorted(ticks.whole())[1 : 1 + INSTANTS] for each in ticks.whole()[at]]
    return late, spent / len(late) * 1e6


def _figures(late: list[float], work: float) -> dict[str, float]:
    cuts = quantiles(late, n=100, method="inclusive")
    return {"p99_ms": cuts[98], "p50_ms": cuts[49], "us_per_tick": work}


def due_at_once(url: str) -> Outcome:
    async def main() -> Outcome:
        yard = Jobyard(url)
        async with yard:
            await _define(yard.store, "due", f"*/{EVERY_SECONDS} * * * * *", DUE)
            return Outcome(_figures(*await _watch(yard.store)))

    return run(main())


def beside_idle_ones(url: str, idle: int) -> Outcome:
    async def main() -> Outcome:
        yard = Jobyard(url)
        async with yard:
            await _define(yard.store, "due", f"*/{EVERY_SECONDS} * * * * *", DUE)
            _, alone = await _watch(yard.store)
            await _define(yard.store, "idle", "0 0 1 1 *", idle)
            late, work = await _watch(yard.store)
            return Outcome({**_figures(late, work), "work_over_none": work / alone})

    return run(main())
