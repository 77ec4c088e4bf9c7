"""A job that kills its worker is put away after three deaths; the others run."""

from __future__ import annotations

import pytest
from tests.story.engines import on_every_store
from tests.story.harness import Harness
from tests.story.sizes import size

from jobyard.domain.job import Ending, State
from jobyard.domain.lease import MAX_DEATHS

pytestmark = [pytest.mark.story, pytest.mark.timeout(300)]


@on_every_store
@pytest.mark.parametrize("concurrency", size([4], [1, 4]))
async def test_a_poison_job_is_quarantined_and_the_others_run(harness: Harness, concurrency: int) -> None:
    await harness.configure()
    others = [await harness.enqueue("span", {"seconds": 0.05}) for _ in range(20)]
    poison = await harness.enqueue("poison")
    others += [await harness.enqueue("span", {"seconds": 0.05}) for _ in range(20)]
    workers = [harness.worker(concurrency=concurrency) for _ in range(2)]

    async def the_end_with_replacements() -> bool:
        for index, worker in enumerate(workers):
            if not worker.is_up:
                workers[index] = harness.worker(concurrency=concurrency)
        return all(info.waiting + info.delayed + info.running == 0 for info in await harness.yard.queues())

    await harness.until(the_end_with_replacements, "every job has ended")
    await harness.ready(workers)
    await harness.stop(workers)

    dead = await harness.yard.get(poison)
    assert (dead.state, dead.deaths) == (State.FAILED, MAX_DEATHS)
    assert dead.reason == f"quarantined: {MAX_DEATHS} workers died while running it"
    assert [error.ending for error in dead.errors] == [Ending.LOST, Ending.LOST, Ending.QUARANTINED]
    assert {(await harness.yard.get(job_id)).state for job_id in others} == {State.COMPLETED}
    history = (await harness.verify()).history
    assert history.processes >= 1 + MAX_DEATHS
