"""Many processes on one file, some of them killed in the middle of a transaction."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from tests.story.inserter import BATCH
from tests.story.scene import Scene
from tests.story.sizes import SOAK, size

from jobyard.domain.job import State

pytestmark = [pytest.mark.story, pytest.mark.timeout(900 if SOAK else 120)]

BATCHES = size(25, 250)
KILLS = size(8, 60)


async def test_inserters_workers_and_readers_share_the_file(scene: Scene) -> None:
    """The judge looks into every log: nobody may have met a locked database."""
    await scene.configure(max_running=50, max_per_group=5)
    readers = [scene.start("reader") for _ in range(2)]
    workers = await scene.workers(3, lease_seconds=15.0)
    inserters = [scene.start("inserter", count=BATCHES) for _ in range(3)]
    await scene.ended(inserters)
    await scene.drained(600 if SOAK else 60)
    scene.marks.put("readers-may-stop")
    await scene.ended(readers)
    await scene.stop(workers)

    assert scene.marks.count("has-read-") == len(readers)
    jobs = await scene.all_jobs()
    assert len(jobs) == 3 * BATCHES * BATCH
    assert {(job.state, job.attempt, job.deaths) for job in jobs} == {(State.COMPLETED, 1, 0)}
    history = (await scene.judge()).history
    assert (history.inserted, history.accepted) == (len(jobs), len(jobs))
    assert history.unanswered == 0


async def test_inserters_are_killed_and_every_acknowledged_batch_is_there_whole(scene: Scene) -> None:
    await scene.configure()
    chance = random.Random(scene.title)
    inserters = [scene.start("inserter") for _ in range(3)]
    for _ in range(KILLS):
        victim = chance.randrange(len(inserters))
        await scene.until(lambda: bool(_lines(scene, inserters[victim].name)), "it inserts")  # noqa: B023
        await asyncio.sleep(chance.uniform(0.0, 0.1))
        scene.kill(inserters[victim])
        inserters[victim] = scene.start("inserter")
    for inserter in inserters:
        scene.kill(inserter)
    await scene.ended(inserters, exit_code=-9)

    found = Counter(job.tags[0] for job in await scene.all_jobs())
    acknowledged = {line for path in scene.marks.paths("acknowledged-") for line in path.read_text().split()}
    assert len(acknowledged) >= KILLS
    assert acknowledged <= set(found)
    assert set(found.values()) == {BATCH}
    # Each process has at most one batch under way when it is killed.
    assert len(set(found) - acknowledged) <= len(scene.kills)
    await scene.judge()


def _lines(scene: Scene, name: str) -> list[str]:
    return [line for path in scene.marks.paths(f"acknowledged-{name}") for line in path.read_text().split()]
