"""Every state of a runner has a time-out, after which the runner is removed with a reason that is told and counted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from tests.github.runner_site import WORKER, RunnerSite, runner_site
from tests.github.scripted_launcher import ScriptedLauncher

from jobyard.domain.job import State
from jobyard.domain.runners.profile import RunnerTimeouts
from jobyard.domain.runners.runner import Runner, RunnerState
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.github.launcher import Instance, PendingCause, Phase
from jobyard.github.manager import RunnerManager
from jobyard.github.metrics import RunnerMetrics
from jobyard.github.tickets import QUEUE

RUNS: dict[str, Any] = {"phase": Phase.RUNNING, "started_at": 1}
# How each state looks in the cluster, whether GitHub shows the runner online, and the reason that is counted.
STATES: dict[RunnerState, tuple[dict[str, Any] | None, bool, str]] = {
    RunnerState.MINTED: (None, False, "never_launched"),
    RunnerState.STARTING: ({"phase": Phase.PENDING}, False, "starting_timeout"),
    RunnerState.UNSCHEDULABLE: ({"trouble": PendingCause.UNSCHEDULABLE}, False, "unschedulable_timeout"),
    RunnerState.IMAGE_ERROR: ({"trouble": PendingCause.IMAGE_ERROR}, False, "image_error_timeout"),
    RunnerState.NOT_ONLINE: (RUNS, False, "not_online_timeout"),
    RunnerState.IDLE: (RUNS, True, "idle_timeout"),
    RunnerState.BUSY: (RUNS, True, "busy_timeout"),
    RunnerState.ENDED: (RUNS, False, "ended_timeout"),
    RunnerState.TERMINATING: ({"is_terminating": True, **RUNS}, False, "terminating_timeout"),
}


class Site:
    """A manager with one runner in a cluster that shows what the test says."""

    def __init__(self, site: RunnerSite) -> None:
        self.site = site
        self.cluster = ScriptedLauncher()
        self.registry = CollectorRegistry()
        self.manager = RunnerManager(
            site.store, site.settings, site.github, {"default": self.cluster}, worker_id=WORKER, ingest=site.ingest
        )
        RunnerMetrics(self.registry).attach_manager(self.manager.reconciler, self.manager.recovery)

    async def launch(self, state: RunnerState, *, is_online: bool, age_seconds: float) -> Runner:
        """Its job is queued on GitHub, and given to nobody."""
        job = self.site.queue_on_github()
        await self.site.receive("acme", job_id=job.id)
        [lease] = (await self.site.store.exchange(WORKER, (), (QUEUE,), 1, 3600)).leases
        name = f"jy-acme-{job.id}"
        await self.site.ingest.tickets.hand_off(lease, name)
        registered, _ = self.site.fake.runners.generate_jitconfig(
            self.site.fake.accounts.owners["acme"], None, name=name, runner_group_id=1, labels=["other"]
        )
        registered.status = "online" if is_online else "offline"
        now = await self.site.now()
        runner = Runner(
            name=name,
            org_name="acme",
            profile="linux",
            state=state,
            since=now - round(age_seconds * 1000),
            ticket=lease.key,
            runner_id=registered.id,
            uid="" if state is RunnerState.MINTED else "u",
            minted_at=now,
        )
        await self.site.ingest.runners.create(runner)
        return runner

    def show(self, runner: Runner, **fields: Any) -> None:
        usual: dict[str, Any] = {"name": runner.name, "uid": "u", "org_name": "acme", "profile": "linux"}
        self.cluster.shown = [Instance(**(usual | fields))]

    def removed(self) -> dict[str, float]:
        """How many runners were removed, by reason."""
        metrics = [each for each in self.registry.collect() if each.name == "jobyard_runner_runners_removed"]
        samples = [sample for metric in metrics for sample in metric.samples if sample.name.endswith("_total")]
        return {sample.labels["reason"]: sample.value for sample in samples}

    async def ticket(self, runner: Runner) -> tuple[State, bytes | None]:
        assert runner.ticket is not None
        job = await self.site.store.get(runner.ticket.job_id)
        assert job is not None
        return job.state, None if job.result is None else bytes(job.result)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with runner_site(ManagerSettings(max_per_org=2)) as made:
        await made.start_manager()
        yield Site(made)


@pytest.mark.parametrize("state", STATES)
async def test_a_runner_that_stays_too_long_in_a_state(site: Site, state: RunnerState) -> None:
    shape, is_online, reason = STATES[state]
    limit = RunnerTimeouts().minted if shape is None else getattr(RunnerTimeouts(), state.value)
    runner = await site.launch(state, is_online=is_online, age_seconds=limit)
    if shape is not None:
        site.show(runner, **shape)
    told: list[tuple[str, str]] = []
    site.manager.reconciler.events.observers.append(lambda what, _, why: told.append((what, why)))
    await site.manager.run_once()
    assert site.removed() == {reason: 1.0}
    assert [why for what, why in told if what == "removed" and why]
    assert site.cluster.removed == ([] if shape is None else [runner.name])
    left = await site.site.ingest.runners.get(runner.name)
    assert left is None if shape is None else left is not None and left.state is RunnerState.TERMINATING
    # The slot is free only when the instance is gone.
    assert (await site.ticket(runner))[0] is (State.PENDING if shape is None else State.RUNNING)


async def test_times_in_whole_seconds_are_not_before_those_that_precede_them(site: Site) -> None:
    runner = await site.launch(RunnerState.MINTED, is_online=False, age_seconds=0)
    second = runner.minted_at // 1000 * 1000
    site.show(runner, phase=Phase.RUNNING, created_at=second - 1000, started_at=second - 1000)
    await site.manager.run_once()
    found = await site.site.ingest.runners.get(runner.name)
    assert found is not None
    assert (found.created_at, found.running_at) == (runner.minted_at, runner.minted_at)


@pytest.mark.parametrize("state", STATES)
async def test_a_runner_within_its_time_is_left_alone(site: Site, state: RunnerState) -> None:
    shape, is_online, _ = STATES[state]
    runner = await site.launch(state, is_online=is_online, age_seconds=0)
    if shape is not None:
        site.show(runner, **shape)
    await site.manager.run_once()
    assert (site.removed(), site.cluster.removed) == ({}, [])


def test_every_state_has_a_time_out() -> None:
    assigned = {RunnerState.MINTING, RunnerState.ASSIGNED}  # those of `minted`
    assert set(STATES) | assigned | {RunnerState.WARM} == set(RunnerState)
    timeouts = {field.name for field in msgspec.structs.fields(RunnerTimeouts)}
    assert timeouts == {state.value for state in RunnerState} - {state.value for state in assigned}


async def test_removals_by_force_are_repeated_and_counted_after_the_time_out_each(site: Site) -> None:
    runner = await site.launch(RunnerState.TERMINATING, is_online=False, age_seconds=3600)
    site.show(runner, is_terminating=True, **RUNS)
    await site.manager.run_once()
    await site.manager.run_once()
    assert site.removed() == {"terminating_timeout": 1.0}
    await site.site.ingest.runners.change(runner.name, lambda known: msgspec.structs.replace(known, since=1))
    await site.manager.run_once()
    assert site.removed() == {"terminating_timeout": 2.0}


async def test_a_runner_that_can_never_start_is_removed_at_once(site: Site) -> None:
    runner = await site.launch(RunnerState.STARTING, is_online=False, age_seconds=0)
    site.show(runner, trouble=PendingCause.INVALID, reason="InvalidImageName: ü")
    await site.manager.run_once()
    assert site.removed() == {"cannot_start": 1.0}


async def test_an_idle_runner_that_just_got_a_job_is_kept(site: Site) -> None:
    """GitHub is asked first, and refuses."""
    runner = await site.launch(RunnerState.IDLE, is_online=True, age_seconds=3600)
    site.show(runner, **RUNS)
    registered = next(each for each in site.site.fake.runners.all() if each.name == runner.name)
    registered.busy = True
    await site.manager.run_once()
    left = await site.site.ingest.runners.get(runner.name)
    assert left is not None
    assert left.state is RunnerState.BUSY
    assert (site.removed(), site.cluster.removed) == ({}, [])


async def test_a_runner_that_succeeded_without_a_job_is_not_a_success(site: Site) -> None:
    """Its job is still wanted: the next launch waits a moment, and says why."""
    runner = await site.launch(RunnerState.NOT_ONLINE, is_online=False, age_seconds=0)
    site.show(runner, phase=Phase.ENDED, exit_code=0, reason="it exited with 0")
    await site.manager.run_once()
    state, result = await site.ticket(runner)
    assert state is State.COMPLETED
    assert b'"ran_job":false' in (result or b"")
    outcomes = {
        each: site.registry.get_sample_value(
            "jobyard_runner_runners_ended_total", {"profile": "linux", "outcome": each}
        )
        for each in ("ran_job", "without_job")
    }
    assert outcomes == {"ran_job": None, "without_job": 1.0}
    [job] = await site.site.ingest.jobs.active()
    await site.site.ingest.jobs.change(job.job_id, lambda known: msgspec.structs.replace(known, ticketed_at=1))
    await site.manager.plan_once()
    assert [ticket.state for ticket in await site.site.ingest.tickets.live()] == [State.PENDING]
    [gate] = await site.site.ingest.runners.gates()
    assert (gate.code, "had no job: it exited with 0" in gate.message) == ("runner_failed", True)
    assert [each for each in site.site.fake.runners.all() if each.name == runner.name] == []


async def test_a_newer_launch_of_the_same_name_is_not_given_back(site: Site) -> None:
    """A snooze counts no attempt, so its next launch has the same name; a slow replica still sees the one before."""
    old = await site.launch(RunnerState.MINTED, is_online=False, age_seconds=3600)
    now = await site.site.now()
    await site.site.ingest.runners.change(old.name, lambda known: msgspec.structs.replace(known, since=now))
    await site.manager.reconciler._ends.give_back(old, None)
    assert await site.site.ingest.runners.get(old.name) is not None
    assert site.removed() == {}
