"""Workflows that start workflows, maps and batches, while workers are killed and parents are cancelled."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest
from tests.story.harness import Harness
from tests.story.ledger import effects, repeated_after_kept
from tests.story.side_by_side import on_each_store
from tests.story.sizes import LEASE_SECONDS, SOAK, size
from tests.support import PATIENCE_SECONDS, pauses

from jobyard.domain.job import Job, State
from jobyard.ports.admin_store import Action

pytestmark = [pytest.mark.story, pytest.mark.timeout(900 if SOAK else 180)]

WORKERS = 3
TREES, BATCHES, BATCH_SIZE = size((4, 3, 12), (24, 12, 200))
WIDTH, DEPTH = size((4, 1), (10, 2))
CANCELLED = TREES // 4
KILLS = size(4, 40)
# A worker is killed each time that this many more effects are in the ledger.
KILL_EVERY_EFFECTS = size(15, 60)


async def start_batches(harness: Harness) -> dict[str, int]:
    """Batches by id, with the number of jobs that fail."""
    tasks = harness.tasks
    found: dict[str, int] = {}
    for number in range(BATCHES):
        async with harness.yard.batch(tasks["tell"]) as batch:
            name = f"batch-{number}"
            work = [tasks["work"].call(name, f"item-{n}", 0.05) for n in range(BATCH_SIZE)]
            await batch.add(*work, *(tasks["breaks"].call(name, f"breaks-{n}") for n in range(number)))
        found[batch.id] = number
    return found


async def storm(harness: Harness, trees: dict[str, str], chance: random.Random) -> None:
    """Kill workers in the middle of their work, and cancel some trees on the way."""
    to_cancel = chance.sample(list(trees.values()), CANCELLED)
    for kill in range(1, KILLS + 1):

        def busy(kill: int = kill) -> list[int]:
            """The processes that did something last, once there is enough in the ledger."""
            lines, up = harness.ledger.read(), harness.pids("worker")
            return [line.pid for line in lines[-WORKERS:] if line.pid in up and len(lines) > kill * KILL_EVERY_EFFECTS]

        await harness.until(lambda busy=busy: bool(busy()), "a worker is busy")
        harness.kill_pid(chance.choice(busy()))
        if to_cancel:
            await harness.yard.store.change(Action.CANCEL, [to_cancel.pop()], reason="storm")
    pause = pauses(0.05)
    # In this order: what is dead once all queues are drained stays dead.
    while not await is_drained(harness) or await redrive(harness):
        await redrive(harness)
        await asyncio.sleep(next(pause))


async def is_drained(harness: Harness) -> bool:
    return all(info.waiting + info.delayed + info.running == 0 for info in await harness.yard.queues())


async def redrive(harness: Harness) -> int:
    """Jobs that were hit three times without a checkpoint in between are quarantined, which is right."""
    ended = [job for job in await harness.all_jobs() if job.state is State.FAILED]
    dead = [job for job in ended if (job.reason or "").startswith("quarantined")]
    ids = [job.id for job in dead if job.kind != "work"]
    await harness.yard.store.change(Action.RETRY, ids)
    return len(ids)


async def story(harness: Harness) -> None:
    await harness.configure()
    chance = random.Random(harness.title)
    trees = await harness.enqueue_workflows(
        "tree", {f"tree-{number}": {"width": WIDTH, "depth": DEPTH} for number in range(TREES)}
    )
    batches = await start_batches(harness)
    pool = await harness.start_pool("worker", WORKERS, concurrency=4, lease_seconds=LEASE_SECONDS)
    async with asyncio.timeout(size(2, 10) * PATIENCE_SECONDS):
        await storm(harness, trees, chance)
    await harness.stop([pool])

    jobs = {job.id: job for job in await harness.all_jobs()}
    lines = harness.ledger.read()
    assert repeated_after_kept(lines) == []
    for name, job_id in trees.items():
        check_tree(jobs[job_id], effects([line for line in lines if line.job == name]))
    for job_id, broken in batches.items():
        told = effects([line for line in lines if line.job == job_id])
        check_batch(jobs[job_id], broken, told)
    assert sum(job.kind == "tell" for job in jobs.values()) == BATCHES
    result = await harness.verify()
    assert result.history.reclaimed > 0


def check_tree(job: Job, done: Counter[str]) -> None:
    if job.state is State.COMPLETED:
        assert job.result is not None
        assert bytes(job.result) == str(2**DEPTH * WIDTH).encode()
        assert done["undo"] == 0
    else:
        assert (job.state, job.reason) == (State.CANCELLED, "storm"), job
        assert done["undo"] >= (done["begun"] >= 1), "its step is undone"


def check_batch(job: Job, broken: int, told: Counter[str]) -> None:
    """A callback is a job like any other: one whose worker was killed may run again, but the counts never differ."""
    assert job.state is State.COMPLETED, job
    assert len(told) == 1, told
    [sentence] = told
    _, completed, failed, cancelled = sentence.split()
    assert int(completed) + int(failed) + int(cancelled) == BATCH_SIZE + broken
    assert int(failed) >= broken


async def test_trees_and_batches_in_a_storm(stage: Path) -> None:
    await on_each_store(story, "trees and batches in a storm", stage)
