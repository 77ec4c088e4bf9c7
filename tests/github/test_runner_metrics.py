"""Metrics of the runner manager: what its parts report, and the gauges of a scrape."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from tests.github.runner_site import WORKER, RunnerSite, runner_site
from tests.github.scripted_launcher import ScriptedLauncher
from tests.server.support import ApiServer

from jobyard.domain.lease import Lease
from jobyard.domain.outcome import Cancel, Failed, Handoff, Outcome, Snooze
from jobyard.domain.runners.github_job import GitHubJobState, RunnerScope
from jobyard.domain.runners.runner import Runner, RunnerState
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.github.api import RunnerRemoval
from jobyard.github.client import GitHubClient
from jobyard.github.job_records import Repository
from jobyard.github.launcher import Instance, Phase
from jobyard.github.manager import RunnerManager
from jobyard.github.metrics import MAX_ORGS, RunnerMetrics
from jobyard.github.tickets import QUEUE
from jobyard.ports.executor import Attempt
from jobyard.server.routes.table import ALL_ROUTES


@pytest.fixture
async def site() -> AsyncIterator[RunnerSite]:
    async with runner_site(ManagerSettings(max_per_org=2)) as made:
        await made.start_manager()
        yield made


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def manager_of(site: RunnerSite, cluster: ScriptedLauncher, registry: CollectorRegistry) -> RunnerManager:
    manager = RunnerManager(
        site.store, site.settings, site.github, {"default": cluster}, worker_id=WORKER, ingest=site.ingest
    )
    RunnerMetrics(registry).attach_manager(manager.reconciler, manager.recovery)
    return manager


def sample(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"jobyard_runner_{name}", labels)


async def test_events_are_counted_by_action_and_effect(site: RunnerSite, registry: CollectorRegistry) -> None:
    RunnerMetrics(registry).attach_ingest(site.ingest)
    job = await site.receive("acme")
    await site.receive("acme", job_id=job.job_id)
    await site.receive("acme", labels=("gpu",))
    await site.receive("acme", GitHubJobState.COMPLETED, job_id=job.job_id)
    counts = {
        (action, effect): sample(registry, "events_total", action=action, effect=effect)
        for action, effect in (("queued", "new"), ("queued", "unchanged"), ("queued", "unserved"))
    }
    assert set(counts.values()) == {1.0}
    assert sample(registry, "events_total", action="completed", effect="changed") == 1
    assert sample(registry, "unserved_jobs_total") == 1


async def test_runner_that_ended_gives_the_time_of_its_legs(site: RunnerSite, registry: CollectorRegistry) -> None:
    cluster = ScriptedLauncher()
    manager = manager_of(site, cluster, registry)
    await site.receive("acme")
    [runner] = await site.launch()
    now = runner.created_at

    def at(known: Runner) -> Runner:
        stamps = {"received_at": now - 3000, "planned_at": now - 2000, "minted_at": now - 500, "running_at": now + 7000}
        return msgspec.structs.replace(known, **stamps)

    await site.ingest.runners.change(runner.name, at)
    await site.start_jobs([runner])
    ended = Instance(name=runner.name, uid="u", org_name="acme", profile="linux", phase=Phase.ENDED, exit_code=0)
    cluster.shown = [ended]
    await manager.run_once()
    assert sample(registry, "runners_ended_total", profile="linux", outcome="ran_job") == 1
    sums = {leg: sample(registry, "leg_seconds_sum", leg=leg) for leg in ("planned", "minted", "created", "running")}
    assert sums == {"planned": 1.0, "minted": 1.5, "created": 0.5, "running": 7.0}
    assert sample(registry, "leg_seconds_count", leg="total") == 1
    assert await site.ingest.runners.all() == []


class BusyGitHub:
    """Keeps the registration of a killed runner as busy, as GitHub may for a quarter of an hour."""

    def __init__(self, site: RunnerSite) -> None:
        self._github = site.github

    def __getattr__(self, name: str) -> object:
        return getattr(self._github, name)

    async def remove_runner(self, scope: RunnerScope, runner_id: int) -> RunnerRemoval:
        return RunnerRemoval.BUSY


async def test_end_is_counted_once_by_all_replicas_and_after_a_restart(
    site: RunnerSite, registry: CollectorRegistry
) -> None:
    """Its registration cannot be removed yet, so each pass, of any manager, sees the ended runner again."""
    cluster = ScriptedLauncher()
    site.github = cast("GitHubClient", BusyGitHub(site))
    metrics = RunnerMetrics(registry)
    managers = []
    for number in range(3):
        made = RunnerManager(
            site.store, site.settings, site.github, {"default": cluster}, worker_id=f"m{number}", ingest=site.ingest
        )
        metrics.attach_manager(made.reconciler, made.recovery)
        managers.append(made)
    job = await site.receive("acme")
    [runner] = await site.launch()
    await site.start_jobs([runner])
    cluster.shown = [Instance(name=runner.name, uid="u", org_name="acme", profile="linux", phase=Phase.ENDED)]
    await asyncio.gather(*(manager.run_once() for manager in managers[:2]))
    # The event of its job is redelivered; then a manager that was started again reconciles.
    await site.receive(
        "acme", GitHubJobState.COMPLETED, job_id=job.job_id, runner_name=runner.name, runner_id=7, conclusion="success"
    )
    for manager in managers:
        await manager.run_once()
    assert sample(registry, "runners_ended_total", profile="linux", outcome="ran_job") == 1
    assert [known.name for known in await site.ingest.runners.all()] == [runner.name]


async def test_removed_runner_is_counted_by_a_bounded_reason(site: RunnerSite, registry: CollectorRegistry) -> None:
    cluster = ScriptedLauncher()
    manager = manager_of(site, cluster, registry)
    await site.receive("acme")
    [runner] = await site.launch(state=RunnerState.IDLE)
    await site.ingest.runners.change(runner.name, lambda known: msgspec.structs.replace(known, since=1, runner_id=5))
    cluster.shown = [Instance(name=runner.name, uid="u", org_name="acme", profile="linux", phase=Phase.RUNNING)]
    site.queue_on_github()  # the organization exists
    await manager.run_once()
    assert sample(registry, "runners_removed_total", reason="idle_timeout") == 1


async def test_lost_jobs_and_redeliveries_are_counted(site: RunnerSite, registry: CollectorRegistry) -> None:
    manager = manager_of(site, ScriptedLauncher(), registry)
    site.queue_on_github()
    assert await manager.recovery.scan(Repository(full_name="acme/shop", org_name="acme")) == 1
    assert sample(registry, "lost_jobs_found_total") == 1
    assert await manager.recovery.scan(Repository(full_name="acme/shop", org_name="acme")) == 0
    assert sample(registry, "lost_jobs_found_total") == 1
    for observer in manager.recovery.observers:
        observer("redelivered", 3)
    assert sample(registry, "redeliveries_total") == 3


@pytest.mark.parametrize(
    ("outcome", "name"),
    [
        (Handoff("r"), "launched"),
        (Snooze(5), "waited"),
        (Cancel("not needed"), "not_needed"),
        (Failed(message="m", type="t"), "failed"),
        (Failed(message="m", type="t", retry=False), "rejected"),
    ],
)
async def test_launches_are_counted_by_outcome(
    site: RunnerSite, registry: CollectorRegistry, outcome: Outcome, name: str
) -> None:
    class Executor:
        async def perform(self, attempt: Attempt) -> Outcome:
            return outcome

    await site.receive("acme")
    [lease] = (await site.store.exchange(WORKER, (), (QUEUE,), 1, 60)).leases
    measured = RunnerMetrics(registry).measured(Executor())
    assert await measured.perform(attempt_of(lease)) is outcome
    assert sample(registry, "launches_total", profile="linux", outcome=name) == 1


def attempt_of(lease: Lease) -> Attempt:
    return cast("Attempt", SimpleNamespace(lease=lease))


async def test_scrape_shows_the_present_state(site: RunnerSite) -> None:
    api = ApiServer(site.store, ALL_ROUTES)
    async with api.client("viewer") as client:
        assert "jobyard_runner" not in (await client.get("/metrics")).text
    api = ApiServer(site.store, ALL_ROUTES)
    api.dependencies.runners = site.services
    for _ in range(5):
        await site.receive("acme")
    [one, _] = await site.launch()
    await site.start_jobs([one])
    async with api.client("viewer") as client:
        text = (await client.get("/metrics")).text
    found = dict(re.findall(r"^jobyard_runner_(\S+) (\S+)$", text, re.MULTILINE))
    assert found['jobs{state="queued"}'] == "4.0"
    assert found['jobs{state="in_progress"}'] == "1.0"
    assert (found['runners{state="busy"}'], found['runners{state="starting"}']) == ("1.0", "1.0")
    assert (found["orgs_at_limit"], found["tickets_waiting"], found["slots_used"]) == ("1.0", "3.0", "2.0")
    assert found["slots"] == "100.0"


async def test_organizations_beyond_a_number_are_counted_together(site: RunnerSite) -> None:
    api = ApiServer(site.store, ALL_ROUTES)
    api.dependencies.runners = site.services
    for number in range(MAX_ORGS + 5):
        job = await site.receive(f"org-{number}")
        now = await site.now()
        await site.ingest.usage.add(
            msgspec.structs.replace(job, started_at=now - 60_000 * (1 + (number >= 5)), completed_at=now)
        )
    async with api.client("viewer") as client:
        text = (await client.get("/metrics")).text
    shown = re.findall(r'^jobyard_runner_minutes_this_month\{org="([^"]+)"\} (\S+)$', text, re.MULTILINE)
    assert len(shown) == MAX_ORGS + 1
    assert dict(shown)["other"] == "5.0"
