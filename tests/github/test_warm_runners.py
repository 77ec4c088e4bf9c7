"""Warm runners: pods that wait without a registration, and get their configuration once, when there is a job."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2 as httpx
import pytest
from prometheus_client import CollectorRegistry
from tests.github.warm_site import TIMEOUTS, WarmSite, profile, started, warm_site
from tests.support import eventually

from jobyard.app.runners import require_runners
from jobyard.config.sections import RunnersSection
from jobyard.demo.runner_world import NAMESPACE
from jobyard.domain.runners.cluster import ProcessCluster
from jobyard.domain.runners.profile import RunnerTimeouts
from jobyard.domain.runners.runner import Runner, RunnerState
from jobyard.errors import ConfigurationError
from jobyard.github.errors import GitHubRejected, GitHubUnavailable
from jobyard.github.kubernetes.labels import ORG
from jobyard.github.kubernetes.pod_template import warm_script
from jobyard.github.metrics import RunnerMetrics, gauges_text
from jobyard.github.runner_records import RUNNERS, RunnerRecords
from jobyard.github.tickets import Tickets


@pytest.fixture
async def site() -> AsyncIterator[WarmSite]:
    async with warm_site() as made:
        yield made


@pytest.fixture
async def silent_site() -> AsyncIterator[WarmSite]:
    """A site whose warm pods do not ask for their configuration until `may_fetch` is set."""
    async with warm_site(may_fetch=False) as made:
        yield made


def token_of(site: WarmSite, runner: Runner) -> str:
    return next(token for token, url in site.world.urls.items() if f"/{runner.name}/" in url)


async def ask(site: WarmSite, name: str, token: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=30, headers={"Authorization": f"Bearer {token}"}) as client:
        return await client.post(f"{site.url}/runners/{name}/configuration")


# A job


async def test_a_warm_runner_takes_a_job(site: WarmSite) -> None:
    [warm] = await site.warm()
    assert site.world.github.runners.all() == []  # no registration waits with it
    job = site.world.job()
    assert await site.in_progress(job) == warm.name
    [ticket] = await Tickets(site.store).live()
    assert ticket.external_id == warm.name
    assert ticket.group == "acme"
    [next_one] = await site.warm()  # the pool is full again
    assert next_one.name != warm.name
    site.world.complete(job)
    await site.at_rest()


async def test_the_pod_shows_its_organization(site: WarmSite) -> None:
    [warm] = await site.warm()
    job = site.world.job()
    await site.in_progress(job)
    pod = next(pod for pod in site.world.pods() if pod["metadata"]["name"] == warm.name)
    assert pod["metadata"]["labels"][ORG] == "acme"
    assert pod["metadata"]["annotations"]["jobyard/repository"] == "acme/web"


async def test_one_pool_serves_all_organizations() -> None:
    async with warm_site(orgs=("acme", "beta")) as site:
        for org in ("acme", "beta"):
            [warm] = await site.warm()
            assert await site.in_progress(site.world.job(org)) == warm.name


async def test_the_configuration_is_stored_nowhere(site: WarmSite, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    await site.warm()
    job = site.world.job()
    await site.in_progress(job)
    [secret] = site.world.configurations
    [token] = [token for token, url in site.world.urls.items() if site.world.github.runners.all()[0].name in url]
    assert any(collection == RUNNERS for collection, _ in site.store.written)
    kept = [data.decode() for _, data in site.store.written]
    kept += [repr(ticket) for ticket in await Tickets(site.store).live()]
    kept += [caplog.text, json.dumps(site.world.pods())]
    for text in kept:
        assert secret[:40] not in text
        assert token not in text
    assert token.encode() in [base64.b64decode(each["data"]["warm-token"]) for each in site.world.secrets()]
    assert {key for each in site.world.secrets() for key in each["data"]} == {"warm-token"}


async def test_the_entry_script_gets_the_configuration(silent_site: WarmSite, tmp_path: Path) -> None:
    site = silent_site
    [warm] = await site.warm()
    await eventually(lambda: site.world.urls)
    token = token_of(site, warm)
    program = tmp_path / "run.sh"
    program.write_text('#!/bin/sh\nprintf %s "$ACTIONS_RUNNER_INPUT_JITCONFIG"\n')
    program.chmod(0o755)
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", warm_script(), "warm-runner", str(program), stdout=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "JOBYARD_WARM_URL": site.world.urls[token], "JOBYARD_WARM_TOKEN": token},
    )  # fmt: skip
    site.world.job()
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    session = site.world.github.connect(output.decode())
    session.kill()


# Who may ask


async def test_the_configuration_is_sent_once(site: WarmSite) -> None:
    [warm] = await site.warm()
    await site.in_progress(site.world.job())
    response = await ask(site, warm.name, token_of(site, warm))
    assert (response.status_code, response.json()["code"]) == (410, "runner_gone")
    assert site.replicas[0].github.minted == [warm.name]


async def test_a_wrong_token_gets_nothing(silent_site: WarmSite) -> None:
    site = silent_site
    [warm] = await site.warm()
    site.world.job()
    assigned = await site.assigned()
    assert assigned.name == warm.name
    for token in ("wrong", assigned.warm_token, "x" * 500):
        assert (await ask(site, warm.name, token)).status_code == 401
    async with httpx.AsyncClient(timeout=60) as client:
        response = await client.post(f"{site.url}/runners/{warm.name}/configuration")
    assert response.status_code == 401
    assert (await ask(site, "jy-warm-linux-0000", "wrong")).status_code == 404
    assert (await ask(site, "%00", "wrong")).status_code == 404
    assert site.replicas[0].github.minted == []


async def test_the_token_of_one_runner_is_not_that_of_another() -> None:
    async with warm_site(profile(warm=2), may_fetch=False) as site:
        first, second = await site.warm(2)
        await eventually(lambda: len(site.world.urls) == 2)
        assert (await ask(site, first.name, token_of(site, second))).status_code == 401


async def test_concurrent_requests_make_one_registration() -> None:
    async with warm_site(replicas=2, may_fetch=False) as site:
        [warm] = await site.warm()
        site.world.job()
        await site.assigned()
        await eventually(lambda: site.world.urls)
        token = token_of(site, warm)
        services = [replica.services.warm for replica in site.replicas]
        asked = (each.deliver(warm.name, token, wait_seconds=0) for each in (*services, *services))
        statuses = [delivery.status for delivery in await asyncio.gather(*asked)]
        assert statuses.count(200) == 1
        assert [name for replica in site.replicas for name in replica.github.minted] == [warm.name]


async def test_two_replicas_do_not_give_one_runner_to_two_jobs() -> None:
    async with warm_site(replicas=2, orgs=("acme", "beta")) as site:
        [warm] = await site.warm()
        jobs = [site.world.job(org) for org in ("acme", "beta")]
        names = [await site.in_progress(job) for job in jobs]
        assert len(set(names)) == 2
        assert warm.name in names
        for job in jobs:
            site.world.complete(job)
        await site.at_rest()


# Failures


async def test_a_pod_that_dies_before_it_asks(silent_site: WarmSite) -> None:
    site = silent_site
    [warm] = await site.warm()
    job = site.world.job()
    await site.assigned()
    site.world.may_fetch.set()
    await site.world.kubernetes.delete("pods", NAMESPACE, warm.name, {"gracePeriodSeconds": 0})
    assert await site.in_progress(job) != warm.name
    site.world.complete(job)
    await site.at_rest()


async def test_a_pod_that_never_asks() -> None:
    timeouts = RunnerTimeouts(minted=0.5, idle=60)
    async with warm_site(profile(timeouts=timeouts), may_fetch=False) as site:
        [warm] = await site.warm()
        site.world.job()
        first = (await site.assigned()).ticket

        async def is_planned_again() -> bool:
            tickets = await Tickets(site.store).live()
            is_gone = warm.name not in {runner.name for runner in await site.runners()}
            return is_gone and len(tickets) == 1 and first is not None and tickets[0].id != first.job_id

        await eventually(is_planned_again, 20)


async def test_a_registration_that_fails_is_tried_again(site: WarmSite) -> None:
    [warm] = await site.warm()
    site.replicas[0].github.failures = [GitHubUnavailable("a bad gateway")]
    assert await site.in_progress(site.world.job()) == warm.name


async def test_a_registration_whose_response_was_lost(site: WarmSite) -> None:
    """The name is taken by a registration without a runner: it is removed, and the next attempt succeeds."""
    [warm] = await site.warm()
    acme = site.world.repositories["acme"].owner
    site.world.github.generate_jitconfig(acme, name=warm.name, labels=["old"], runner_group_id=1)
    job = site.world.job()
    assert await site.in_progress(job) == warm.name
    assert [runner.name for runner in site.world.github.runners.all()] == [warm.name]


async def test_a_registration_that_fails_too_often_ends_the_runner(site: WarmSite) -> None:
    [warm] = await site.warm()
    site.replicas[0].github.failures = [GitHubUnavailable("a bad gateway")] * 3
    job = site.world.job()

    async def is_removed() -> bool:
        return warm.name not in {runner.name for runner in await site.runners()}

    await eventually(is_removed, 20)
    [gate] = await RunnerRecords(site.store).gates()
    assert gate.code == "github_unavailable"
    assert job.status == "queued"
    assert site.world.github.runners.all() == []


async def test_a_rejected_registration_blocks_the_job(site: WarmSite) -> None:
    await site.warm()
    site.replicas[0].github.failures = [GitHubRejected("Resource not accessible", 403)]
    job = site.world.job()

    async def is_blocked() -> bool:
        known = await site.replicas[0].services.ingest.jobs.get(job.id)
        return known is not None and known.blocked.startswith("rejected")

    await eventually(is_blocked, 20)
    await site.at_rest()
    assert site.replicas[0].github.failures == []


async def test_an_empty_store_keeps_running_jobs_and_replaces_warm_runners() -> None:
    async with warm_site() as before:
        [taken] = await before.warm()
        job = before.world.job()
        await before.in_progress(job)
        [idle] = await before.warm()
        await before.stop()
        async with started(before.world) as after:

            async def is_adopted() -> bool:
                return [each.name for each in await after.runners(RunnerState.BUSY)] == [taken.name]

            await eventually(is_adopted, 20)
            [ticket] = await Tickets(after.store).live()
            assert ticket.group == "acme"
            await eventually(lambda: idle.name not in after.world.names(), 20)
            [warm] = await after.warm()
            assert warm.name != idle.name
            after.world.complete(job)
            await after.at_rest()


# The pool


async def test_warm_runners_leave_the_last_slot_to_jobs() -> None:
    gpu = profile("gpu", ("gpu",))
    async with warm_site(profile(warm=0), gpu, max_total=1) as site:
        [warm] = await site.warm()
        job = site.world.job()  # of the other profile
        name = await site.in_progress(job)
        assert name != warm.name
        assert await site.runners(RunnerState.WARM) == []
        site.world.complete(job)
        await site.at_rest()


async def test_a_warm_runner_needs_no_further_slot() -> None:
    async with warm_site(profile(max_running=1), max_total=1) as site:
        [warm] = await site.warm()
        assert await site.in_progress(site.world.job()) == warm.name


async def test_the_total_limits_the_pool() -> None:
    async with warm_site(profile(warm=5), max_total=2) as site:
        await site.warm(2)
        await site.replicas[0].manager.warm_pool.run_once()
        assert len(site.world.pods()) == 2


async def test_an_old_warm_runner_is_replaced() -> None:
    async with warm_site(profile(timeouts=RunnerTimeouts(warm=1))) as site:
        [warm] = await site.warm()
        await eventually(lambda: warm.name not in site.world.names(), 20)
        [other] = await site.warm()
        assert other.name != warm.name


async def test_a_changed_profile_replaces_its_warm_runners() -> None:
    async with warm_site() as before:
        [warm] = await before.warm()
        await before.stop()
        changed = profile(pod_template={"metadata": {"labels": {"team": "build"}}})
        async with started(before.world, changed, store=before.store) as after:
            await eventually(lambda: warm.name not in after.world.names(), 20)
            await after.warm()


async def test_a_pool_that_is_switched_off_is_emptied() -> None:
    async with warm_site() as before:
        await before.warm()
        await before.stop()
        async with started(before.world, profile(warm=0), store=before.store) as after:
            await after.at_rest(0)


async def test_warm_runners_that_cannot_start_are_not_started_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    def failures() -> int:
        return sum("no warm runner of profile linux is started" in each.getMessage() for each in caplog.records)

    broken = profile(pod_template={"spec": {"containers": [{"name": "runner", "image": "NOT VALID"}]}})
    async with warm_site(broken) as site:
        pool = site.replicas[0].manager.warm_pool
        await eventually(lambda: failures() >= 1, 20)
        names = site.world.names()
        await pool.run_once()
        assert site.world.names() <= names
        assert failures() == 1


async def test_warm_runners_are_shown_and_belong_to_no_organization(site: WarmSite) -> None:
    [warm] = await site.warm()
    page = await site.replicas[0].services.queries.pods(state=RunnerState.WARM)
    assert [(pod.name, pod.org_name) for pod in page.items] == [(warm.name, "")]
    orgs = await site.replicas[0].services.queries.orgs()
    assert "" not in {org.name for org in orgs.items}


async def test_the_metrics_count_warm_runners(site: WarmSite) -> None:
    await site.warm()
    text = (await gauges_text(site.replicas[0].services.queries)).decode()
    assert 'jobyard_runner_runners{state="warm"} 1.0' in text
    assert "jobyard_runner_slots_used 1.0" in text


def test_the_time_before_the_job_is_no_leg_of_its_launch() -> None:
    registry = CollectorRegistry()
    runner = Runner(
        name="w",
        warm_token="t",
        created_at=1_000,
        running_at=2_000,
        received_at=900_000,
        planned_at=900_010,
        minted_at=900_500,
        online_at=901_500,
        busy_at=902_000,
    )
    RunnerMetrics(registry).observed("ended", runner, "")

    def seconds(leg: str) -> float | None:
        return registry.get_sample_value("jobyard_runner_leg_seconds_sum", {"leg": leg})

    assert (seconds("minted"), seconds("online"), seconds("total")) == (0.49, 1.0, 2.0)
    assert seconds("running") is None


# The configuration


def section(**fields: object) -> RunnersSection:
    return RunnersSection(webhook_secrets=("s",), **fields)  # type: ignore[arg-type]


def test_warm_runners_need_the_address_of_the_server() -> None:
    with pytest.raises(ConfigurationError, match="warm_url"):
        require_runners(section(profiles=(profile(),)))
    require_runners(section(profiles=(profile(),), warm_url="http://jobyard:8080"))
    require_runners(section(profiles=(profile(warm=0),)))


def test_warm_runners_need_a_cluster() -> None:
    here = {"here": ProcessCluster(runner_folder="/r", work_folder="/w")}
    one = profile(cluster="here", timeouts=TIMEOUTS)
    with pytest.raises(ConfigurationError, match="backend process"):
        require_runners(section(profiles=(one,), clusters=here, warm_url="http://jobyard:8080"))
