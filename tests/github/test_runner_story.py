"""Stories of the runner manager: real processes, a fake GitHub and a fake cluster over HTTP, crashes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.github.runner_story import RunnerStory, on_stores, runner_story
from tests.story.side_by_side import EVERY_STORE
from tests.story.sizes import SOAK, size

from jobyard.demo.fake_kubernetes import ApiFault
from jobyard.github.tickets import QUEUE

pytestmark = [pytest.mark.story, pytest.mark.timeout(300)]

# The scenario of the specification: 10 runners per organization and 100 in all, then 25, 50 and 10.
REFERENCE = ({"acme": 35, "beta": 50, "corp": 72}, 10, {"acme": 25, "beta": 50})
# The same with fewer jobs: launching a runner takes a tenth of a second of the machine. `test_organizations` has all
# of them in virtual time.
SMALL = ({"acme": 4, "beta": 5, "corp": 4}, 1, {"acme": 2, "beta": 3})
# Longer than any wait of a story: what happens meanwhile is the effect of an event, not of a regular look.
NO_TICK = {"tick_seconds": 600.0, "full_seconds": 600.0}

# Below the deadlines of calls to GitHub and to a cluster, which are 15 s: the answer waits for neither. The benchmark
# `webhook` measures how long it takes.
NOT_WAITED_SECONDS = 10.0


async def test_organizations_with_their_limits(tmp_path: Path) -> None:
    counts, per_org, own = size(SMALL, REFERENCE)

    async def tell(engine: str) -> None:
        async with runner_story(tmp_path, engine, tuple(counts), max_per_org=per_org, **NO_TICK) as story:
            await story.start_up()
            story.queue(counts)
            await ten_each(story, counts, per_org)
            await next_of_the_same_starts(story, "acme")
            await own_limits(story, counts, per_org, own)
            story.release()
            await story.ends()
            assert len(story.launched) == sum(counts.values())
            assert len(set(story.launched)) == len(story.launched)

    await on_stores(tell, EVERY_STORE)


async def ten_each(story: RunnerStory, counts: Mapping[str, int], per_org: int) -> None:
    await story.all_run(**dict.fromkeys(counts, per_org))
    expected = {org: (per_org, count - per_org) for org, count in counts.items()}

    async def as_expected() -> bool:
        return await story.tickets() == expected

    await story.until(as_expected, f"tickets are {expected}")
    assert (story.peaks, story.peak) == (dict.fromkeys(counts, per_org), per_org * len(counts))

    async def shown() -> bool:
        orgs = (await story.http.get("/v1/runners/orgs")).json()
        assert f"at most {per_org * len(counts)} of 100 can run" in orgs["totals"]["sentence"]
        return {org["name"]: (org["running"], org["waiting"]) for org in orgs["items"]} == expected

    await story.until(shown, "the API shows it")

    async def explained() -> bool:
        query: dict[str, str | int] = {"state": "queued", "page_size": 500}
        waiting = (await story.http.get("/v1/runners/jobs", params=query)).json()["items"]
        return {job["reason"]["code"] for job in waiting} == {"org_limit_reached"}

    # A runner counts as starting until GitHub's event about its job has come.
    await story.until(explained, "all that wait do so because of the limit")


async def next_of_the_same_starts(story: RunnerStory, org: str) -> None:
    others = {name: count for name, count in story.running().items() if name != org}
    first, before = story.jobs("in_progress", org=org)[0], len(story.launched)
    story.complete(first)
    await story.until(lambda: len(story.launched) == before + 1, "another runner is launched")
    await story.all_run(**others, **{org: story.peaks[org]})
    assert story.launched[-1].startswith(f"jy-{org}-")


async def own_limits(story: RunnerStory, counts: Mapping[str, int], per_org: int, own: Mapping[str, int]) -> None:
    """Changed at run time, one by the command line and one by the API."""
    await story.command("limits", "set", QUEUE, "acme", str(own["acme"]))
    at = f"/v1/queues/{QUEUE}/groups/beta/limit"
    assert (await story.http.put(at, json={"limit": own["beta"]})).status_code == 204
    await story.all_run(**{org: own.get(org, per_org) for org in counts})
    assert story.peak == sum(own.values()) + per_org
    assert story.peaks == {org: own.get(org, per_org) for org in counts}


async def test_limits_of_the_configuration(tmp_path: Path) -> None:
    """Per organization and in all."""
    limits = {"max_total": 5, "max_per_org": 2, "org_limits": {"acme": 3, "beta": 4}}
    async with runner_story(tmp_path, "sqlite", ("acme", "beta", "corp"), **limits) as story:
        story.queue({"corp": 4})
        await story.start_up()
        await story.all_run(corp=2)
        story.queue({"acme": 5, "beta": 5})
        await story.until(lambda: len(story.pods()) == 5, "five run")
        story.release()
        await story.ends()
        assert (story.peak, story.peaks["corp"]) == (5, 2)
        assert story.peaks["acme"] <= 3
        assert story.peaks["beta"] <= 4


async def test_webhook_of_the_oldest_job_comes_last(tmp_path: Path) -> None:
    """GitHub gives the first runner the oldest job, whose own ticket stays for the job that is left over."""
    async with runner_story(tmp_path, "sqlite", ("acme",), max_per_org=1, **NO_TICK) as story:
        await story.start_up()
        faults = story.world.github.faults
        faults.webhook_delayed, faults.webhook_delay_seconds = 1.0, 0.5
        story.queue({"acme": 1})
        faults.webhook_delayed = 0.0
        story.queue({"acme": 2})
        story.release()
        await story.ends()
        assert len(set(story.launched)) == len(story.launched) == 3


@pytest.mark.parametrize("keeps_store", [True, False], ids=["same store", "empty store"])
async def test_killed_manager(tmp_path: Path, keeps_store: bool) -> None:
    """Its pods are adopted and counted, what it was launching is not launched twice, and waiting jobs are found."""
    counts = size({"acme": 5, "beta": 4}, {"acme": 40, "beta": 25})

    async def tell(engine: str) -> None:
        async with runner_story(tmp_path, engine, tuple(counts), max_per_org=3) as story:
            first = await story.start_up()
            story.queue(counts)
            # In mid-flight: some runners have a job, and others are being launched.
            await story.until(lambda: sum(story.running().values()) >= 2, "the first jobs run")
            first.kill()
            first.wait()
            survivors = set(story.pods())
            if not keeps_store:
                await story.new_store()
            ended = story.jobs("in_progress")[0]
            story.complete(ended)  # while there is no manager
            await story.start_up()
            await story.all_run(acme=3, beta=3)
            assert (story.peaks["acme"], story.peaks["beta"]) == (3, 3)
            assert survivors <= set(story.launched[: len(survivors)])
            story.release()
            # A registration without a pod is known to the store only; GitHub removes it as it was never used.
            await story.ends(but="" if keeps_store else "registrations", after_kill=True)
            assert not any(runner.status == "online" for runner in story.world.github.runners.all())
            assert (story.peaks["acme"], story.peaks["beta"]) == (3, 3)
            # Beyond one runner for each job, only those that the kill interrupted between their creation and their job.
            assert len(set(story.launched)) == len(story.launched) <= sum(counts.values()) + 6

    # An empty store is empty whatever it was before.
    await on_stores(tell, EVERY_STORE if keeps_store else size(("redis",), EVERY_STORE))


async def test_two_managers_and_a_server(tmp_path: Path) -> None:
    """All are active at the same time; one of them is killed."""
    counts = size({"acme": 6, "beta": 5}, {"acme": 60, "beta": 60})

    async def tell(engine: str) -> None:
        async with runner_story(tmp_path, engine, tuple(counts), max_per_org=3) as story:
            await story.start_server()
            first, _ = story.start("runners", "manager"), story.start("runners", "manager")
            story.queue(counts)
            await story.all_run(acme=3, beta=3)
            for job in story.jobs("in_progress")[::2]:
                story.complete(job)
            await story.until(lambda: len(story.launched) >= 8, "others follow")
            first.kill()
            first.wait()
            story.release()
            await story.ends(after_kill=True)
            assert (story.peaks["acme"], story.peaks["beta"]) == (3, 3)

    await on_stores(tell, EVERY_STORE)


async def test_webhooks_are_answered_while_github_and_the_cluster_hang(tmp_path: Path) -> None:
    async with runner_story(tmp_path, "sqlite", ("acme",)) as story:
        await story.start_up()
        story.queue({"acme": 1})
        await story.all_run(acme=1)
        story.world.github.faults.hanging = 1.0
        story.world.kubernetes.faults.api.append(ApiFault(kind="hang_before"))
        story.queue({"acme": size(30, 300)})
        await story.world.github.webhooks.drain()
        deliveries = [each for each in story.world.github.webhooks.log if each.event == "workflow_job"]
        assert {delivery.status_code for delivery in deliveries} == {200}
        assert max(delivery.duration for delivery in deliveries) < NOT_WAITED_SECONDS or not SOAK
        began = time.monotonic()
        assert (await story.http.get("/v1/runners/orgs")).json()["items"][0]["waiting"] >= 1
        assert time.monotonic() - began < NOT_WAITED_SECONDS or not SOAK
