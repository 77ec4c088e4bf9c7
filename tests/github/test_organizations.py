"""The scenario of the specification: 157 jobs of three organizations, and limits that are changed while they wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from tests.github.simulation.replica import POLL_SECONDS
from tests.github.simulation.run import run_scenario
from tests.github.simulation.scenario import TIMEOUTS, Scenario
from tests.github.simulation.world import World, org_of

from jobyard.demo.fake_github import Job, JobSpec
from jobyard.domain.runners.profile import RunnerProfile
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.github.queries import RunnerQueries
from jobyard.github.tickets import QUEUE

JOBS = {"acme": 35, "beta": 50, "corp": 72}
PROFILE = RunnerProfile(name="linux", labels=("code-linux",), image="runner:1", timeouts=TIMEOUTS)
SCENARIO = Scenario(
    seed=1,
    orgs=tuple(JOBS),
    settings=ManagerSettings(
        profiles=(PROFILE,), max_total=100, max_per_org=10, instance="sim", organizations=tuple(JOBS)
    ),
)
UNTIL_TOLD = 86_400.0
# The simulated worker looks for tickets from time to time, as if no notification reached it.
MOMENT_SECONDS = 2 * POLL_SECONDS


def test_organizations_with_their_limits() -> None:
    assert run_scenario(SCENARIO, "memory", story) == []


async def story(world: World) -> list[str]:
    await world.start()
    for org, count in JOBS.items():
        specs = [JobSpec(labels=list(PROFILE.labels), duration=UNTIL_TOLD) for _ in range(count)]
        for first in range(0, count, 10):
            world.github.queue_run(world.repositories[org], specs[first : first + 10])
    await ten_each(world)
    await next_of_the_same_starts(world)
    await own_limits(world)
    for job in jobs(world, "queued"):
        job.spec.duration = 1.0
    for job in jobs(world, "in_progress"):
        world.github.jobs.complete(job, "success")
    return await world.end()


async def ten_each(world: World) -> None:
    await runs(world, {"acme": 10, "beta": 10, "corp": 10})
    queries = RunnerQueries(world.store, SCENARIO.settings, cache_seconds=0)
    summary = await queries.orgs()
    assert summary.totals is not None
    assert "at most 30 of 100 can run" in summary.totals.sentence
    assert {org.name: org.waiting for org in summary.items} == {"acme": 25, "beta": 40, "corp": 62}


async def next_of_the_same_starts(world: World) -> None:
    world.github.jobs.complete(jobs(world, "in_progress", "acme")[0], "success")
    await runs(world, {"acme": 10, "beta": 10, "corp": 10})
    assert len(jobs(world, "queued", "acme")) == 24


async def own_limits(world: World) -> None:
    """Changed while the manager runs."""
    world.limits |= {"acme": 25, "beta": 50}
    for org, limit in world.limits.items():
        await world.store.set_limit(QUEUE, org, limit)
    await runs(world, {"acme": 25, "beta": 50, "corp": 10})
    assert len(world.slots()) == 85


async def runs(world: World, expected: Mapping[str, int]) -> None:
    await asyncio.sleep(MOMENT_SECONDS)
    assert Counter(job.repository.owner.login for job in jobs(world, "in_progress")) == expected
    assert Counter(map(org_of, world.slots())) == expected


def jobs(world: World, status: str, org: str | None = None) -> list[Job]:
    found = [job for job in world.github.jobs.jobs.values() if job.status == status]
    return [job for job in found if org in (None, job.repository.owner.login)]
