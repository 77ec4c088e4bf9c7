"""Jobs that were cancelled while GitHub could not be asked: no runner is launched that no job can take."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.github.simulation.run import run_scenario
from tests.github.simulation.scenario import TIMEOUTS, Scenario
from tests.github.simulation.world import World

from jobyard.demo.fake_github import Faults, JobSpec
from jobyard.demo.fake_kubernetes.storage import Change
from jobyard.domain.runners.profile import RunnerProfile
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.github.job_records import GitHubJobs

PROFILE = RunnerProfile(name="linux", labels=("code-linux",), image="runner:1", timeouts=TIMEOUTS)
UNREACHABLE = Faults(server_error=1.0)
SILENT = Faults(server_error=1.0, webhook_dropped=1.0)
RUNS = 8
JOBS_OF_RUN = 5


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("seed", range(5))
def test_no_runner_is_launched_for_cancelled_jobs(seed: int, replicas: int) -> None:
    settings = ManagerSettings(profiles=(PROFILE,), max_total=20, max_per_org=10, instance="sim", organizations=("a",))
    scenario = Scenario(seed=seed, orgs=("a",), settings=settings, replicas=replicas, faults="api")
    assert run_scenario(scenario, "memory", outage) == []


async def outage(world: World) -> list[str]:
    rng = random.Random(world.scenario.seed)
    await world.start()
    world.github.faults = UNREACHABLE
    specs = [JobSpec(labels=list(PROFILE.labels), duration=600.0) for _ in range(JOBS_OF_RUN)]
    runs = [world.github.queue_run(world.repositories["a"], specs) for _ in range(RUNS)]
    await asyncio.sleep(5)
    world.github.faults = SILENT
    cancelled = rng.sample(runs, RUNS - 1)
    for run in cancelled:
        world.github.cancel(run)
    await asyncio.sleep(rng.uniform(1, 60))
    launched = watch_launches(world)
    world.github.faults = Faults()
    await asyncio.sleep(400)
    assert len(launched) == JOBS_OF_RUN, launched
    assert {job.job_id for job in await GitHubJobs(world.store, ()).active()} >= {
        job.id for run in runs if run not in cancelled for job in run.jobs
    }
    return await world.end()


def watch_launches(world: World) -> list[str]:
    launched: list[str] = []

    def on_change(change: Change) -> None:
        if change.before is None and change.after is not None:
            launched.append(change.after["metadata"]["name"])

    world.kubernetes.storage.subscribe("pods", on_change)
    return launched
