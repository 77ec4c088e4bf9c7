"""Slots of warm runners and of launches that other replicas have begun: the total holds, whatever is seen of them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.github.runner_site import LABELS, WORKER, RunnerSite, runner_site
from tests.github.scripted_launcher import Claim, ScriptedLauncher

from jobyard.domain.lease import Lease
from jobyard.domain.outcome import Handoff, Outcome, Snooze
from jobyard.domain.runners.profile import RunnerProfile
from jobyard.domain.runners.runner import Runner, RunnerState
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.github.clusters import Clusters
from jobyard.github.executor import RunnerExecutor
from jobyard.github.launcher import Instance, Phase
from jobyard.github.limits import RunnerLimits
from jobyard.github.tickets import QUEUE
from jobyard.github.warm_pool import WarmPool
from jobyard.ports.clock import SystemClock

LINUX = RunnerProfile(name="linux", labels=LABELS, warm=1)
GPU = RunnerProfile(name="gpu", labels=("gpu",), warm=1)


class Replica:
    def __init__(self, site: RunnerSite, total: int) -> None:
        self.site = site
        self.view = ScriptedLauncher()
        settings = msgspec.structs.replace(site.settings, profiles=(LINUX, GPU), max_total=total, warm_url="http://j")
        clock = SystemClock()
        launchers, limits = {"default": self.view}, RunnerLimits(site.store, clock)
        clusters = Clusters(site.store, site.ingest.runners, launchers, clock)
        self.executor = RunnerExecutor(settings, site.ingest, site.github, launchers, clusters, limits, clock)
        self.pool = WarmPool(settings, site.ingest, launchers, clusters, self.executor.warm, limits, clock)

    async def perform(self, lease: Lease) -> Outcome:
        return await self.executor.perform(Claim(lease))

    async def warm(self, profile: RunnerProfile = LINUX, *, shown: Phase | None = None) -> Runner:
        """A warm runner of any replica; this one sees its instance only if it is shown."""
        now = await self.site.now()
        name = f"jy-warm-{profile.name}-{len(await self.site.ingest.runners.all())}"
        runner = Runner(
            name=name, profile=profile.name, state=RunnerState.WARM, since=now, uid="u", created_at=now,
            warm_token="t", profile_digest=profile.digest,
        )  # fmt: skip
        await self.site.ingest.runners.create(runner)
        if shown is not None:
            self.view.shown.append(Instance(name=name, uid="u", profile=profile.name, phase=shown, created_at=now))
        return runner


@pytest.fixture
async def site() -> AsyncIterator[RunnerSite]:
    async with runner_site(ManagerSettings(max_total=2)) as made:
        await made.start_manager()
        yield made


async def claimed(site: RunnerSite, count: int) -> list[Lease]:
    """Tickets of that many queued jobs, claimed by a worker that has not launched anything yet."""
    for _ in range(count):
        job = site.queue_on_github()
        await site.receive("acme", job_id=job.id, repo_full_name="acme/shop")
    leases = list((await site.store.exchange(WORKER, (), (QUEUE,), count, 3600)).leases)
    assert len(leases) == count
    return leases


async def test_a_launch_of_another_replica_counts_beside_a_warm_runner(site: RunnerSite) -> None:
    _, lease = await claimed(site, 2)  # the first one is being launched elsewhere
    replica = Replica(site, total=2)
    await replica.warm(GPU)  # so is this one
    assert isinstance(await replica.perform(lease), Snooze)
    assert replica.view.launched == []


async def test_admission_is_enough_without_warm_runners(site: RunnerSite) -> None:
    _, lease = await claimed(site, 2)
    replica = Replica(site, total=2)
    assert isinstance(await replica.perform(lease), Handoff)
    assert len(replica.view.launched) == 1


async def test_the_pool_counts_claimed_tickets(site: RunnerSite) -> None:
    await claimed(site, 2)
    replica = Replica(site, total=2)
    await replica.pool.run_once()
    assert replica.view.launched == []
    assert await site.ingest.runners.all() == []


async def test_the_pool_leaves_slots_to_waiting_tickets(site: RunnerSite) -> None:
    job = site.queue_on_github()
    await site.receive("acme", job_id=job.id, repo_full_name="acme/shop")
    replica = Replica(site, total=2)
    await replica.pool.run_once()
    assert [each.profile.name for each in replica.view.launched] == ["linux"]


async def test_a_ticket_takes_a_warm_runner_when_all_slots_are_taken(site: RunnerSite) -> None:
    [lease] = await claimed(site, 1)
    replica = Replica(site, total=2)
    warm = await replica.warm(shown=Phase.RUNNING)
    await replica.warm(GPU)
    assert await replica.perform(lease) == Handoff(warm.name)
    taken = await site.ingest.runners.get(warm.name)
    assert taken is not None
    assert (taken.state, taken.org_name, taken.ticket) == (RunnerState.ASSIGNED, "acme", lease.key)
    assert replica.view.launched == []


async def test_a_warm_runner_of_another_profile_makes_room(site: RunnerSite) -> None:
    [lease] = await claimed(site, 1)
    replica = Replica(site, total=2)
    first = await replica.warm(GPU, shown=Phase.RUNNING)
    await replica.warm(GPU)
    assert isinstance(await replica.perform(lease), Snooze)
    assert replica.view.removed == [first.name]
    assert isinstance(await replica.perform(lease), Snooze)  # it still holds its slot
    assert replica.view.launched == []


async def test_a_warm_runner_of_the_own_profile_that_starts_is_waited_for(site: RunnerSite) -> None:
    [lease] = await claimed(site, 1)
    replica = Replica(site, total=2)
    await replica.warm(shown=Phase.PENDING)
    await replica.warm(GPU)
    assert isinstance(await replica.perform(lease), Snooze)
    assert replica.view.removed == []


async def test_a_ticket_whose_lease_is_lost_gives_its_warm_runner_back(site: RunnerSite) -> None:
    [lease] = await claimed(site, 1)
    replica = Replica(site, total=2)
    warm = await replica.warm(shown=Phase.RUNNING)
    stolen = msgspec.structs.replace(lease, token="another")
    with pytest.raises(Exception, match="lease was lost"):
        await replica.perform(stolen)
    known = await site.ingest.runners.get(warm.name)
    assert known is not None
    assert (known.state, known.org_name, known.ticket) == (RunnerState.WARM, "", None)
    assert await replica.perform(lease) == Handoff(warm.name)
