"""A workflow of a killed worker goes on in another process within the lease time."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.story.harness import Harness
from tests.story.ledger import effects
from tests.story.side_by_side import on_each_store
from tests.story.sizes import LEASE_SECONDS, RECOVERY_SLACK_SECONDS

from jobyard.domain.job import State

pytestmark = [pytest.mark.story, pytest.mark.timeout(300)]


async def story(harness: Harness) -> None:
    await harness.configure()
    ids = await harness.enqueue_workflows("hold", {"held": {}})
    [victim] = await harness.workers(1)
    await harness.until(lambda: effects(harness.ledger.of("held"))["begun"] == 1, "it runs its second step")
    [other] = await harness.workers(1)
    harness.kill(victim)
    await harness.until(lambda: effects(harness.ledger.of("held"))["begun"] == 2, "the other worker runs it again")
    harness.flags.put("open-all")
    [job] = await harness.done(*ids.values())
    assert (job.state, job.attempt) == (State.COMPLETED, 1)
    assert effects(harness.ledger.of("held")) == {"before": 1, "begun": 2}
    await harness.stop([other])
    result = await harness.verify()
    [seconds] = result.recovery_seconds
    assert seconds < LEASE_SECONDS + RECOVERY_SLACK_SECONDS


async def test_a_workflow_goes_on_elsewhere_within_the_lease_time(stage: Path) -> None:
    await on_each_store(story, "a workflow goes on elsewhere within the lease time", stage)
