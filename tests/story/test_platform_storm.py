"""Eight platforms and three workers for each, which are killed: one job at a time per platform, in order."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
from tests.story.harness import Harness, Process
from tests.story.ledger import Line, repeated_after_kept
from tests.story.overlap import most_at_once
from tests.story.side_by_side import EVERY_STORE, on_each_store
from tests.story.sizes import SOAK, size

from jobyard.domain.job import State
from jobyard.domain.state import was_quarantined
from jobyard.ports.admin_store import Action

pytestmark = [pytest.mark.story, pytest.mark.timeout(900 if SOAK else 300)]

PLATFORMS = tuple(f"platform-{number}" for number in range(8))
# For `make test` three workers serve all platforms; in the soak each platform has three of its own.
SERVED: tuple[tuple[str, ...], ...] = size((PLATFORMS,), tuple((platform,) for platform in PLATFORMS)) * 3
JOBS, VISITS, SECONDS = size((2, 2, 0.3), (40, 20, 0.1))
KILLS = size(3, 40)


async def enqueue_all(harness: Harness, chance: random.Random, before: int) -> int:
    jobs: list[tuple[str, object, dict[str, object]]] = []
    for platform in PLATFORMS:
        mine: list[tuple[str, object, dict[str, object]]] = [("span", {"seconds": SECONDS}, {})] * JOBS
        mine += [
            ("visit", {"job": f"{platform}/{before + n}", "seconds": SECONDS}, {"is_workflow": True})
            for n in range(VISITS)
        ]
        chance.shuffle(mine)
        jobs += [
            (kind, payload, {**options, "queue": platform, "priority": chance.choice([0, 0, 5])})
            for kind, payload, options in mine
        ]
    return len(await harness.enqueue_all(jobs))


async def kill_some(harness: Harness, workers: dict[Process, tuple[str, ...]], chance: random.Random) -> int:
    """Kill workers while they run something, and replace them; returns how many jobs there were."""
    count = 0
    for _ in range(KILLS):
        holders: list[Process] = []

        async def is_busy(found: list[Process] = holders) -> bool:
            nonlocal count
            if not await work_is_left(harness):  # at first, or because a busy machine did not look in time
                count += await enqueue_all(harness, chance, count)
            running = {job.worker for job in await harness.all_jobs() if job.state is State.RUNNING}
            found[:] = [worker for worker in workers if worker.name in running]
            return bool(found)

        await harness.until(is_busy, "a worker runs a job")
        victim = chance.choice(holders)
        harness.kill(victim)
        served = workers.pop(victim)
        workers[harness.worker(concurrency=8, queues=served)] = served
    return count


async def work_is_left(harness: Harness) -> bool:
    return any(info.waiting + info.delayed + info.running for info in await harness.yard.queues())


async def redrive(harness: Harness) -> None:
    """Jobs that were hit three times are quarantined, which is right."""
    dead = [job for job in await harness.all_jobs() if job.state is State.FAILED]
    assert all(was_quarantined(job.errors) for job in dead)
    await harness.yard.store.change(Action.RETRY, [job.id for job in dead])


async def story(harness: Harness) -> None:
    for platform in PLATFORMS:
        await harness.configure(platform, max_running=1)
    chance = random.Random(harness.title)
    workers = {harness.worker(concurrency=8, queues=served): served for served in SERVED}
    await harness.ready(workers)
    count = await kill_some(harness, workers, chance)
    await harness.drained(size(60.0, 600.0))
    await redrive(harness)
    await harness.drained()
    await harness.ready(workers)
    await harness.stop(workers)

    jobs = await harness.all_jobs()
    assert len(jobs) == count
    assert {job.state for job in jobs} == {State.COMPLETED}
    lines = harness.ledger.read()
    assert repeated_after_kept(lines) == []
    for platform in PLATFORMS:
        assert most_at_once(job for job in jobs if job.queue == platform and job.kind == "span") == 1
        visits = [line for line in lines if line.job.startswith(f"{platform}/")]
        assert overlaps(visits) == []
    result = await harness.verify()
    assert result.history.reclaimed > 0
    assert result.history.claims >= count


def overlaps(lines: list[Line]) -> list[tuple[Line, Line]]:
    """Ends of steps that do not come right after the begin of the same step: another one ran in between."""
    turns = [line for line in lines if line.word in ("began", "ended")]
    return [
        (before, line)
        for before, line in pairwise(turns)
        if line.word == "ended"
        and (before.word, before.job, before.what, before.pid) != ("began", line.job, line.what, line.pid)
    ]


# Side by side in `make test`; in the soak one after the other, because each has 24 workers.
@pytest.mark.parametrize("engines", size([EVERY_STORE], [(engine,) for engine in EVERY_STORE]), ids="+".join)
async def test_platforms_are_serial_while_workers_are_killed(stage: Path, engines: tuple[str, ...]) -> None:
    await on_each_store(story, "platforms are serial while workers are killed", stage, engines)
