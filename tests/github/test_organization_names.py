"""An organization is one group with one limit, by whatever spelling of its name its jobs and limits come in."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from tests.github.runner_site import LINUX, WORKER, RunnerSite, runner_site

from jobyard.domain.runners.github_job import JobEvent
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.github.adoption import Adoption
from jobyard.github.job_records import Repository
from jobyard.github.launcher import Instance, Launcher, Phase
from jobyard.github.manager import declare_queue
from jobyard.github.recovery import Recovery
from jobyard.github.requeue import requeue
from jobyard.github.runner_events import RunnerEvents
from jobyard.github.takeover import TakeoverResult, read_entry, take_over
from jobyard.github.tickets import QUEUE
from jobyard.operations.local import LocalOperations
from jobyard.ports.clock import SystemClock

SPELLINGS = ("acme", "ACME", "Acme", "aCME")
SETTINGS = ManagerSettings(max_total=20, max_per_org=2)
LIMIT = 3
SEEDS = range(20)

Door = Callable[[RunnerSite, str], Awaitable[object]]


async def webhook(site: RunnerSite, org: str) -> None:
    await site.receive(org)


async def by_hand(site: RunnerSite, org: str) -> None:
    job = site.queue_on_github("acme/shop")
    await requeue(site.ingest, site.github, f"{org}/shop", job.id, await site.now())


async def unchecked_import(site: RunnerSite, org: str) -> None:
    job = site.queue_on_github("acme/shop")
    labels = list(LINUX.labels)
    value = {"job_id": job.id, "run_id": job.run.id, "repo_full_name": f"{org}/shop", "org_name": org, "labels": labels}
    entry = read_entry("pending", msgspec.json.encode(value))
    taken = await take_over(site.ingest, (LINUX,), entry, None, await site.now())
    assert taken.result is TakeoverResult.ENTERED


async def checked_import(site: RunnerSite, org: str) -> None:
    job = site.queue_on_github("acme/shop")
    entry = read_entry("pending", msgspec.json.encode({"job_id": job.id, "repo_full_name": f"{org}/shop"}))
    taken = await take_over(site.ingest, (LINUX,), entry, site.github, await site.now())
    assert taken.result is TakeoverResult.ENTERED


async def scan(site: RunnerSite, org: str) -> None:
    site.queue_on_github("acme/shop")
    recovery = Recovery(site.store, site.settings, site.ingest, site.github, SystemClock())
    await recovery.scan(Repository(full_name=f"{org}/shop", org_name=org))


async def answer(site: RunnerSite, org: str) -> None:
    job = site.queue_on_github("acme/shop")
    found = await site.github.job(f"{org}/shop", job.id)
    assert found is not None
    now = await site.now()
    await site.ingest.receive(JobEvent(action="queued", job=found, received_at=now, is_answer=True))


async def adoption(site: RunnerSite, org: str) -> None:
    name = f"jy-{org.lower()}-{random.randrange(1 << 32):x}"
    instance = Instance(
        name=name,
        uid=name,
        namespace="",
        org_name=org,
        profile="linux",
        phase=Phase.RUNNING,
        created_at=await site.now(),
    )
    launcher = cast("Launcher", SimpleNamespace(name="default"))
    await Adoption(site.store, site.ingest, RunnerEvents(), WORKER).adopt_if_needed(launcher, instance, {}, {})


async def limit_of_the_file(site: RunnerSite, org: str) -> None:
    await declare_queue(site.store, msgspec.structs.replace(site.settings, org_limits={org: LIMIT}))


async def limit_by_hand(site: RunnerSite, org: str) -> None:
    await LocalOperations(site.store).set_limit(QUEUE, org, LIMIT)


JOB_DOORS: tuple[Door, ...] = (webhook, by_hand, unchecked_import, checked_import, scan, answer, adoption)
LIMIT_DOORS: tuple[Door, ...] = (limit_of_the_file, limit_by_hand)


@pytest.mark.parametrize("first", JOB_DOORS)
@pytest.mark.parametrize("second", JOB_DOORS)
async def test_two_doors_lead_to_one_group(first: Door, second: Door) -> None:
    async with runner_site(SETTINGS) as site:
        await site.start_manager()
        await first(site, "acme")
        await second(site, "ACME")
        assert [group.name for group in await site.store.groups(QUEUE)] == ["acme"]


@pytest.mark.parametrize("seed", SEEDS)
async def test_an_organization_is_one_group_with_its_limit(seed: int) -> None:
    rng = random.Random(seed)
    doors = [rng.choice(JOB_DOORS[:-1]) for _ in range(8)]
    doors.insert(rng.randrange(len(doors)), rng.choice(LIMIT_DOORS))
    async with runner_site(SETTINGS) as site:
        await site.start_manager()
        for door in doors:
            await door(site, rng.choice(SPELLINGS))
        [group] = await site.store.groups(QUEUE)
        assert group.limit == LIMIT
        assert len(await site.launch()) == LIMIT
        [org] = (await site.queries.orgs()).items
        assert (org.name, org.limit, org.running) == (group.name, LIMIT, LIMIT)


async def test_github_tells_how_its_names_are_spelled() -> None:
    async with runner_site(SETTINGS) as site:
        job = site.queue_on_github("acme/shop")
        found = await requeue(site.ingest, site.github, "ACME/Shop", job.id, await site.now())
        assert (found.org_name, found.repo_full_name) == ("acme", "acme/shop")


async def test_lists_find_an_organization_by_any_spelling() -> None:
    async with runner_site(SETTINGS) as site:
        await site.receive("acme")
        assert len((await site.queries.jobs(org="ACME")).items) == 1


async def test_limit_of_the_file_in_another_spelling_is_changed_by_the_file() -> None:
    async with runner_site(SETTINGS) as site:
        await site.start_manager()
        await limit_of_the_file(site, "ACME")
        await site.receive("acme")
        await declare_queue(site.store, msgspec.structs.replace(site.settings, org_limits={"ACME": 7}))
        assert [(group.name, group.limit) for group in await site.store.groups(QUEUE)] == [("acme", 7)]
        await declare_queue(site.store, site.settings)
        assert [(group.name, group.limit) for group in await site.store.groups(QUEUE)] == [("acme", None)]
