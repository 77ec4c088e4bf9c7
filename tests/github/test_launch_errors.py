"""What a failed launch does: which failures are retried, which are not, and who waits because of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest
from tests.github.runner_site import WORKER, RunnerSite, runner_site
from tests.github.scripted_launcher import Claim, ScriptedLauncher

from jobyard.domain.job import State
from jobyard.domain.lease import Lease
from jobyard.domain.outcome import Failed, Handoff, Outcome, Snooze
from jobyard.domain.runners.github_job import RunnerScope
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.domain.state import Settlement, Transition, judge
from jobyard.github.api import GitHubApi, JitConfig
from jobyard.github.errors import (
    GitHubError,
    GitHubRateLimited,
    GitHubRejected,
    GitHubUnavailable,
    LaunchError,
    LaunchQuotaExceeded,
    LaunchRejected,
    LaunchUnavailable,
    RunnerNameTaken,
)
from jobyard.github.executor import QUOTA_SECONDS
from jobyard.github.launcher import Instance, LaunchRequest
from jobyard.github.manager import RunnerManager
from jobyard.github.tickets import MAX_ATTEMPTS, QUEUE, RETRY_SECONDS
from jobyard.ports.admin_store import Action


class GitHub:
    """The client of the site, whose registrations fail as told."""

    def __init__(self, site: RunnerSite) -> None:
        self._client = site.github
        self.fails: list[GitHubError] = []
        self.names: list[str] = []
        self.configurations: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def generate_jitconfig(
        self, scope: RunnerScope, name: str, group_id: int, labels: Sequence[str], work_folder: str = "_work"
    ) -> JitConfig:
        self.names.append(name)
        if self.fails:
            raise self.fails.pop(0)
        made = await self._client.generate_jitconfig(scope, name, group_id, labels, work_folder)
        self.configurations.append(made.encoded)
        return made


class Cluster(ScriptedLauncher):
    fails: LaunchError | None = None

    async def launch(self, request: LaunchRequest) -> Instance:
        if self.fails is not None:
            raise self.fails
        return await super().launch(request)


class Site:
    def __init__(self, site: RunnerSite) -> None:
        self.site = site
        self.github, self.cluster = GitHub(site), Cluster()
        self.manager = RunnerManager(
            site.store,
            site.settings,
            cast("GitHubApi", self.github),
            {"default": self.cluster},
            worker_id=WORKER,
            ingest=site.ingest,
        )

    async def claim(self, org: str = "acme") -> Lease:
        job = self.site.queue_on_github(f"{org}/shop")
        await self.site.receive(org, job_id=job.id)
        [lease] = (await self.site.store.exchange(WORKER, (), (QUEUE,), 1, 3600)).leases
        return lease

    async def claim_again(self, lease: Lease) -> Lease:
        """The next attempt, after a snooze that is over."""
        await self.site.store.exchange(WORKER, [Settlement(lease.key, Transition(to=State.PENDING))], (), 0, 30)
        await self.site.ingest.runners.open_gate(RunnerScope("acme"), "linux")
        [found] = (await self.site.store.exchange(WORKER, (), (QUEUE,), 1, 3600)).leases
        return found

    async def launch(self, org: str = "acme") -> Outcome:
        return await self.manager.executor.perform(Claim(await self.claim(org)))

    async def blocked(self) -> str:
        [job] = await self.site.ingest.jobs.active()
        return job.blocked.partition(":")[0]

    async def gates(self) -> dict[str, str]:
        return {gate.scope: gate.code for gate in await self.site.ingest.runners.gates()}


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with runner_site(ManagerSettings(max_per_org=5)) as made:
        await made.start_manager()
        yield Site(made)


@pytest.mark.parametrize("status", [400, 403, 404, 422])
async def test_a_rejected_registration_is_not_retried(site: Site, status: int) -> None:
    site.github.fails = [GitHubRejected("no", status)]
    outcome = await site.launch()
    assert isinstance(outcome, Failed)
    assert not outcome.retry
    assert await site.blocked() == "rejected"
    assert (len(site.github.names), await site.site.ingest.runners.all()) == (1, [])
    await site.manager.plan_once()
    assert [each.state for each in await site.site.ingest.tickets.live()] == [State.RUNNING]  # no further ticket


async def test_a_rejected_pod_is_not_retried_and_its_registration_is_removed(site: Site) -> None:
    site.cluster.fails = LaunchRejected("the image is missing")
    outcome = await site.launch()
    assert isinstance(outcome, Failed)
    assert not outcome.retry
    assert await site.blocked() == "rejected"
    assert site.site.fake.runners.all() == []


async def test_runner_of_a_rejected_pod_leaves_the_list_when_its_ticket_has_ended(site: Site) -> None:
    site.cluster.fails = LaunchRejected("the image is missing")
    lease = await site.claim()
    outcome = await site.manager.executor.perform(Claim(lease))
    runners = site.site.ingest.runners
    await site.manager.reconciler.run_once()
    assert len(await runners.all()) == 1  # only its record knows the key of the ticket
    await site.site.store.exchange(WORKER, [Settlement(lease.key, judge(lease, outcome))], (), 0, 30)
    await site.manager.reconciler.run_once()
    assert await runners.all() == []


async def test_a_name_that_is_taken_is_replaced_at_once(site: Site) -> None:
    site.github.fails = [RunnerNameTaken("taken"), RunnerNameTaken("taken")]
    outcome = await site.launch()
    assert outcome == Handoff(site.github.names[-1])
    assert len(set(site.github.names)) == 3


@pytest.mark.parametrize("error", [GitHubUnavailable("away"), LaunchUnavailable("away")], ids=["GitHub", "cluster"])
async def test_what_is_away_is_tried_three_more_times_30_s_apart(site: Site, error: GitHubError | LaunchError) -> None:
    lease = await site.claim()
    outcomes = []
    for attempt in range(1, MAX_ATTEMPTS + 1):
        if isinstance(error, LaunchError):
            site.cluster.fails = error
        else:
            site.github.fails = [error]
        outcomes.append(outcome := await site.manager.executor.perform(Claim(lease)))
        assert isinstance(outcome, Failed)
        assert (outcome.retry, outcome.retry_after_seconds) == (True, 30.0)
        assert await site.blocked() == ("launch_failed" if attempt == MAX_ATTEMPTS else "")
        if attempt < MAX_ATTEMPTS:
            transition = judge(lease, outcome, 0.5, WORKER)
            assert transition.to is State.PENDING
            await site.site.ingest.tickets.settle(lease.key, transition)
            lease = await retried(site, lease)
    assert (len(outcomes), RETRY_SECONDS) == (4, 30.0)
    assert judge(lease, outcomes[-1], 0.5, WORKER).to is State.FAILED
    assert len(set(site.github.names)) == len(site.github.names) == 4  # each attempt has a name of its own


async def retried(site: Site, lease: Lease) -> Lease:
    """The next attempt, without the wait."""
    store = site.site.store
    await store.change(Action.RUN_NOW, [lease.job_id])
    [again] = (await store.exchange(WORKER, (), (QUEUE,), 1, 3600)).leases
    assert (again.job_id, again.attempt) == (lease.job_id, lease.attempt + 1)
    return again


async def test_a_full_quota_holds_back_the_organization_and_not_the_job(site: Site) -> None:
    site.cluster.fails = LaunchQuotaExceeded("exceeded quota: pods")
    lease = await site.claim()
    outcome = await site.manager.executor.perform(Claim(lease))
    assert outcome == Snooze(QUOTA_SECONDS)
    assert (await site.gates(), site.site.fake.runners.all()) == ({"acme": "quota_exceeded"}, [])
    assert await site.blocked() == ""
    # A snooze counts as no attempt, and keeps the place of the ticket.
    await site.site.store.exchange(WORKER, [Settlement(lease.key, judge(lease, outcome, 0.5, WORKER))], (), 0, 30)
    waiting = await site.site.store.get(lease.job_id)
    assert waiting is not None
    assert (waiting.state, waiting.attempt, waiting.sequence) == (State.PENDING, 0, lease.sequence)
    site.cluster.fails = None
    names = len(site.github.names)
    assert isinstance(await site.launch(), Snooze)
    assert len(site.github.names) == names  # nothing is registered meanwhile
    assert isinstance(await site.launch("beta"), Handoff)  # another organization


async def test_a_launch_after_a_snooze_uses_a_new_name(site: Site) -> None:
    # A snooze counts as no attempt, and the first launch may have left something behind on GitHub or in the cluster.
    site.cluster.fails = LaunchQuotaExceeded("exceeded quota: pods")
    lease = await site.claim()
    for _ in range(2):
        outcome = await site.manager.executor.perform(Claim(lease))
        assert outcome == Snooze(QUOTA_SECONDS)
        lease = await site.claim_again(lease)
    assert len(set(site.github.names)) == 2


async def test_a_reason_that_lasts_is_logged_once_a_minute(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.cluster.is_silent = True
    claims = [Claim(await site.claim()) for _ in range(3)]
    for claim in claims:
        await site.site.ingest.runners.open_gate(RunnerScope("acme"), "linux")
        assert isinstance(await site.manager.executor.perform(claim), Snooze)
    said = [record.getMessage() for record in caplog.records if "waits" in record.getMessage()]
    assert len(said) == 1
    assert said[0].endswith("The runners cannot be counted, as these clusters do not answer: default.")


async def test_a_rate_limit_is_obeyed(site: Site) -> None:
    site.github.fails = [GitHubRateLimited("secondary rate limit", 77.0)]
    assert await site.launch() == Snooze(77.0)
    assert await site.gates() == {"acme": "github_unavailable"}


async def test_a_cluster_says_when_to_come_again(site: Site) -> None:
    site.cluster.fails = LaunchUnavailable("too many requests", 9.0)
    outcome = await site.launch()
    assert isinstance(outcome, Failed)
    assert outcome.retry_after_seconds == 9.0


async def test_the_configuration_is_neither_stored_nor_logged(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    written: list[bytes] = []
    put = site.site.store.put

    async def observed(collection: str, key: str, data: bytes, *more: Any, **named: Any) -> Any:
        written.append(data)
        return await put(collection, key, data, *more, **named)

    monkeypatch.setattr(site.site.store, "put", observed)
    assert isinstance(await site.launch(), Handoff)
    [configuration] = site.github.configurations
    [request] = site.cluster.launched
    assert request.jit is not None
    assert request.jit.encoded == configuration
    kept = [data.decode() for data in written] + [repr(each) for each in await site.site.ingest.tickets.live()]
    assert any(request.name in text for text in kept)
    for text in (*kept, caplog.text, repr(request)):
        assert configuration[:40] not in text
