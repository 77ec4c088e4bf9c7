"""Several clusters, and clusters whose configuration was changed: limits hold, and no runner is lost from sight."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.github.runner_site import LABELS, LINUX, WORKER, RunnerSite, runner_site
from tests.github.scripted_launcher import Claim, ScriptedLauncher

from jobyard.domain.job import State
from jobyard.domain.outcome import Handoff, Outcome, Snooze
from jobyard.domain.runners.profile import RunnerProfile
from jobyard.domain.runners.runner import Runner, RunnerState
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.github.launcher import Instance, Phase
from jobyard.github.manager import RunnerManager
from jobyard.github.tickets import QUEUE

GPU = RunnerProfile(name="gpu", labels=("gpu",), cluster="gpu", max_running=1)


class Site:
    """A manager of two clusters. Passes are made by the test."""

    def __init__(self, site: RunnerSite, *names: str) -> None:
        self.site = site
        self.linux, self.gpu = ScriptedLauncher("default"), ScriptedLauncher("gpu")
        settings = msgspec.structs.replace(site.settings, profiles=(LINUX, GPU))
        launchers = {each.name: each for each in (self.linux, self.gpu) if not names or each.name in names}
        self.manager = RunnerManager(site.store, settings, site.github, launchers, worker_id=WORKER, ingest=site.ingest)

    async def launch(self) -> Outcome:
        """Queue a job, claim its ticket and perform it."""
        job = self.site.queue_on_github()
        await self.site.receive("acme", job_id=job.id, repo_full_name="acme/shop", labels=LABELS)
        [lease] = (await self.site.store.exchange(WORKER, (), (QUEUE,), 1, 3600)).leases
        return await self.manager.executor.perform(Claim(lease))

    async def runner(self, **fields: object) -> Runner:
        """A runner with a job, and with the ticket that it was launched with."""
        await self.site.receive("acme")
        [runner] = await self.site.launch(state=RunnerState.BUSY)
        changed = await self.site.ingest.runners.change(
            runner.name, lambda known: msgspec.structs.replace(known, uid="u", runner_id=7, **fields)
        )
        assert changed is not None
        return changed

    async def is_ticket_running(self, runner: Runner) -> bool:
        assert runner.ticket is not None
        job = await self.site.store.get(runner.ticket.job_id)
        return job is not None and job.state is State.RUNNING


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with runner_site(ManagerSettings(max_total=3, max_per_org=2)) as made:
        await made.start_manager()
        yield Site(made)


def instance(runner: Runner, phase: Phase = Phase.RUNNING, **fields: object) -> Instance:
    facts = {"org_name": runner.org_name, "profile": runner.profile, "exit_code": 0 if phase is Phase.ENDED else None}
    return msgspec.convert({"name": runner.name, "uid": "u", "phase": phase, **facts, **fields}, Instance)


# A cluster that does not answer


async def test_a_cluster_that_is_away_holds_back_its_own_launches_only(site: Site) -> None:
    await site.manager.run_once()
    site.gpu.is_silent = True
    assert isinstance(await site.launch(), Handoff)
    assert len(site.linux.launched) == 1


async def test_launches_into_a_cluster_that_is_away_wait(site: Site) -> None:
    await site.manager.run_once()
    site.linux.is_silent = True
    assert isinstance(await site.launch(), Snooze)
    assert site.linux.launched == []


async def test_runners_of_a_cluster_that_is_away_count(site: Site) -> None:
    """By their records, also if they have no ticket, as after a loss of all data."""
    await site.manager.run_once()
    for name in ("jy-acme-1", "jy-acme-2"):
        await site.site.ingest.runners.create(
            Runner(name=name, org_name="acme", profile="gpu", cluster="gpu", state=RunnerState.BUSY, uid="u")
        )
    site.gpu.is_silent = True
    assert isinstance(await site.launch(), Snooze)
    assert site.linux.launched == []


async def test_a_cluster_that_was_never_seen_holds_back_everything(site: Site) -> None:
    """It may have runners that this store does not know."""
    site.gpu.is_silent = True
    await site.manager.run_once()
    assert isinstance(await site.launch(), Snooze)
    assert site.linux.launched == []


async def test_runners_of_a_cluster_that_is_away_are_left_alone(site: Site) -> None:
    runner = await site.runner(cluster="gpu", profile="gpu")
    await site.manager.run_once()  # sees that it is gone
    assert await site.site.ingest.runners.all() == []
    runner = await site.runner(cluster="gpu", profile="gpu")
    site.gpu.is_silent = True
    await site.manager.run_once()
    assert [each.name for each in await site.site.ingest.runners.all()] == [runner.name]
    assert await site.is_ticket_running(runner)


# A limit that was raised a moment ago


async def test_a_raised_limit_takes_effect_at_once(site: Site) -> None:
    await site.manager.run_once()
    for _ in range(2):
        runner = await site.runner()
        site.linux.shown.append(instance(runner))
    await site.manager.limits.total()  # the limits are known now, and kept for a moment
    await site.site.store.set_limit(QUEUE, "acme", 3)
    assert isinstance(await site.launch(), Handoff)


# A changed configuration


async def test_a_runner_in_a_namespace_that_is_not_used_any_more(site: Site) -> None:
    """It keeps its slot while it runs, and is settled and removed once it has ended."""
    runner = await site.runner(namespace="before")
    site.linux.elsewhere = [instance(runner, namespace="before")]
    await site.manager.run_once()
    assert await site.is_ticket_running(runner)
    site.linux.elsewhere = [instance(runner, Phase.ENDED, namespace="before")]
    await site.manager.run_once()
    assert site.linux.removed == [runner.name]
    assert not await site.is_ticket_running(runner)
    assert await site.site.ingest.runners.all() == []


async def test_launches_record_their_namespace(site: Site) -> None:
    await site.manager.run_once()
    await site.launch()
    assert [runner.namespace for runner in await site.site.ingest.runners.all()] == ["runners"]


async def test_a_cluster_that_has_another_name_now(site: Site) -> None:
    runner = await site.runner(cluster="old-name")
    site.linux.shown = [instance(runner)]
    await site.manager.run_once()
    assert [each.cluster for each in await site.site.ingest.runners.all()] == ["default"]
    assert await site.is_ticket_running(runner)


async def test_a_runner_whose_cluster_is_not_configured_any_more(site: Site) -> None:
    """Its slot is free once GitHub has no job for it."""
    site.site.queue_on_github()  # the organization exists
    runner = await site.runner(cluster="old-name")
    await site.manager.run_once()
    assert not await site.is_ticket_running(runner)
    assert await site.site.ingest.runners.all() == []
