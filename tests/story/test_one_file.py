"""Many processes on one file, some of them killed in the middle of a transaction."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from tests.story.harness import Harness
from tests.story.inserter import BATCH
from tests.story.sizes import SOAK, size

from jobyard.domain.job import State

pytestmark = [pytest.mark.story, pytest.mark.timeout(900 if SOAK else 300)]

BATCHES = size(25, 250)
KILLS = size(8, 60)


async def test_inserters_workers_and_readers_share_the_file(harness: Harness) -> None:
    """The harness reads every log: no process may have met a locked database."""
    await harness.configure(max_running=50, max_per_group=5)
    readers = [harness.start("reader") for _ in range(2)]
    workers = await harness.workers(3, lease_seconds=15.0)
    inserters = [harness.start("inserter", count=BATCHES) for _ in range(3)]
    await harness.ended(inserters)
    await harness.drained(600 if SOAK else 60)
    harness.flags.put("readers-may-stop")
    await harness.ended(readers)
    await harness.stop(workers)

    assert harness.flags.count("has-read-") == len(readers)
    jobs = await harness.all_jobs()
    assert len(jobs) == 3 * BATCHES * BATCH
    assert {(job.state, job.attempt, job.deaths) for job in jobs} == {(State.COMPLETED, 1, 0)}
    history = (await harness.verify()).history
    assert (history.inserted, history.accepted) == (len(jobs), len(jobs))
    assert history.unanswered == 0


async def test_inserters_are_killed_and_every_acknowledged_batch_is_there_whole(harness: Harness) -> None:
    await harness.configure()
    chance = random.Random(harness.title)
    inserters = [harness.start("inserter") for _ in range(3)]
    for _ in range(KILLS):
        victim = chance.randrange(len(inserters))
        await harness.until(lambda: bool(_lines(harness, inserters[victim].name)), "it inserts")  # noqa: B023
        await asyncio.sleep(chance.uniform(0.0, 0.1))
        harness.kill(inserters[victim])
        inserters[victim] = harness.start("inserter")
    for inserter in inserters:
        harness.kill(inserter)
    await harness.ended(inserters, exit_code=-9)

    found = Counter(job.tags[0] for job in await harness.all_jobs())
    acknowledged = {line for path in harness.flags.paths("acknowledged-") for line in path.read_text().split()}
    assert len(acknowledged) >= KILLS
    assert acknowledged <= set(found)
    assert set(found.values()) == {BATCH}
    # Each process has at most one batch under way when it is killed.
    assert len(set(found) - acknowledged) <= len(harness.kills)
    await harness.verify()


def _lines(harness: Harness, name: str) -> list[str]:
    return [line for path in harness.flags.paths(f"acknowledged-{name}") for line in path.read_text().split()]
