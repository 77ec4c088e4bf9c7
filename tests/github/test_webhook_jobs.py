"""What events of jobs change: every action, duplicates, any order, on every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.github.runner_site import LABELS
from tests.github.webhook_client import WebhookClient, on_engine, webhook_client, workflow_job
from tests.story.engines import on_every_store

from jobyard.demo.fake_github import JobSpec
from jobyard.domain.runners.github_job import GitHubJobState
from jobyard.domain.runners.runner import Runner, RunnerState

BEFORE, AFTER, LATER = "2026-11-02T10:00:01Z", "2026-11-02T10:00:02Z", "2026-11-02T10:00:03Z"


@pytest.fixture
async def client() -> AsyncIterator[WebhookClient]:
    async with webhook_client() as made:
        yield made


@pytest.fixture
async def stored(engine: str, tmp_path: Path) -> AsyncIterator[WebhookClient]:
    async with on_engine(engine, tmp_path) as made:
        yield made


# One job


@on_every_store
async def test_every_action(stored: WebhookClient) -> None:
    await stored.site.start_manager()
    assert await stored.send(workflow_job("queued")) == "new"
    assert (await stored.state(), await stored.tickets()) == ("queued", [7])
    [runner] = await stored.site.launch()
    assert await stored.send(workflow_job("in_progress", runner_name=runner.name, runner_id=3)) == "changed"
    bound = await stored.site.ingest.runners.get(runner.name)
    assert bound is not None
    assert (await stored.state(), bound.state, bound.job_id) == ("in_progress", RunnerState.BUSY, 7)
    done = workflow_job("completed", runner_name=runner.name, runner_id=3, conclusion="failure")
    assert await stored.send(done) == "changed"
    job = await stored.site.ingest.jobs.get(7)
    assert job is not None
    assert (job.state, job.conclusion, job.runner_name) == (GitHubJobState.COMPLETED, "failure", runner.name)
    assert await stored.site.ingest.jobs.active() == []
    [usage] = await stored.site.ingest.usage.all()
    assert (usage.org_name, list(usage.jobs.values())) == ("acme", [1])


async def test_minutes_are_counted_by_the_times_of_github(client: WebhookClient) -> None:
    """A delivery that comes late, or again, must not make a job longer."""
    runner = Runner(name="r-1", org_name="acme", profile="linux", state=RunnerState.IDLE)
    await client.site.ingest.runners.create(runner)
    now = datetime.now(UTC)
    created, started, ended = (
        (now - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ") for minutes in (30, 20, 15)
    )
    fields: dict[str, Any] = {"created_at": created, "started_at": started, "runner_name": "r-1", "runner_id": 3}
    await client.send(workflow_job("in_progress", **fields))
    await client.send(workflow_job("completed", **fields, completed_at=ended))
    found = await client.site.queries.job(7)
    assert found is not None
    assert (found.started_at, found.completed_at) == tuple(at.replace("Z", ".000Z") for at in (started, ended))
    (usage,) = await client.site.ingest.usage.all()
    assert list(usage.minutes.values()) == [5.0]


async def test_other_job_than_the_requested_one(client: WebhookClient) -> None:
    """GitHub gives a runner to any matching job: the event says which."""
    await client.site.start_manager()
    for number in (1, 2):
        await client.send(workflow_job("queued", number))
    [first, _] = await client.site.launch()
    await client.send(workflow_job("in_progress", 2, runner_name=first.name))
    bound = await client.site.ingest.runners.get(first.name)
    assert bound is not None
    assert (bound.requested_job_id, bound.job_id) == (1, 2)
    assert (await client.state(1), await client.state(2)) == ("queued", "in_progress")


async def test_runner_of_a_queued_event_is_not_believed(client: WebhookClient) -> None:
    await client.send(workflow_job("queued", runner_id=3, runner_name="foreign"))
    job = await client.site.ingest.jobs.get(7)
    assert job is not None
    assert (job.runner_name, job.runner_id) == (None, None)


async def test_cancelled_before_it_ran(client: WebhookClient) -> None:
    """GitHub names runner 0, an empty name or null."""
    names: list[dict[str, Any]] = [{}, {"runner_id": 0, "runner_name": ""}, {"runner_id": None}]
    for number, named in enumerate(names, 1):
        await client.send(workflow_job("queued", number))
        cancelled = workflow_job("completed", number, conclusion="cancelled", **named)
        assert await client.send(cancelled) == "changed"
        job = await client.site.ingest.jobs.get(number)
        assert job is not None
        assert (job.conclusion, job.runner_id, job.runner_name) == ("cancelled", None, None)
    assert await client.site.ingest.usage.all() == []


# Organizations and labels


async def test_organization_is_the_owner_when_it_is_not_named(client: WebhookClient) -> None:
    payload = workflow_job("queued")
    del payload["organization"]
    await client.send(payload)
    job = await client.site.ingest.jobs.get(7)
    assert job is not None
    assert (job.org_name, job.owner_is_user, str(job.scope)) == ("acme", False, "acme")


async def test_jobs_of_user_accounts_get_runners_of_their_repository(client: WebhookClient) -> None:
    await client.send(workflow_job("queued", org=None))
    job = await client.site.ingest.jobs.get(7)
    assert job is not None
    assert (job.org_name, job.owner_is_user, str(job.scope)) == ("kim", True, "kim/shop")


@on_every_store
async def test_labels_that_no_profile_serves(stored: WebhookClient) -> None:
    for number, labels in enumerate(([], None, [None], ["ubuntu-latest"], [*LABELS, "gpu"], "code-linux"), 1):
        assert await stored.send(workflow_job("queued", number, labels=labels)) == "unserved", labels
    assert await stored.send(workflow_job("queued", 4, labels=["ubuntu-latest"])) == "unchanged"
    assert [job.job_id for job in await stored.site.ingest.jobs.unserved()] == [1, 2, 3, 4, 5, 6]
    assert (await stored.tickets(), await stored.site.ingest.jobs.active()) == ([], [])
    async with stored.api.client("viewer") as viewer:
        listed = (await viewer.get("/v1/runners/jobs", params={"state": "unserved"})).json()["items"]
        assert [job["job_id"] for job in listed] == [1, 2, 3, 4, 5, 6]
        assert (await viewer.get("/v1/runners/orgs")).json()["totals"]["unserved"] == 6
    for action in ("in_progress", "completed"):
        assert await stored.send(workflow_job(action, 5, labels=["ubuntu-latest"])) == "unserved"
    assert [job.job_id for job in await stored.site.ingest.jobs.unserved()] == [1, 2, 3, 4, 6]
    assert await stored.send(workflow_job("queued", 5, labels=["ubuntu-latest"])) == "unchanged"


async def test_labels_are_compared_without_case_and_as_a_subset(client: WebhookClient) -> None:
    for number, labels in enumerate((["Code-Linux"], ["SELF-HOSTED"], [*LABELS, None]), 1):
        assert await client.send(workflow_job("queued", number, labels=labels)) == "new"


async def test_running_job_keeps_its_profile_when_its_event_has_no_labels(client: WebhookClient) -> None:
    await client.site.start_manager()
    await client.send(workflow_job("queued"))
    [runner] = await client.site.launch()
    assert await client.send(workflow_job("in_progress", labels=[], runner_name=runner.name)) == "changed"
    job = await client.site.ingest.jobs.get(7)
    bound = await client.site.ingest.runners.get(runner.name)
    assert job is not None
    assert bound is not None
    assert (job.state, job.profile, bound.job_id) == (GitHubJobState.IN_PROGRESS, "linux", 7)


async def test_unserved_job_on_a_runner_of_ours_makes_it_busy(client: WebhookClient) -> None:
    """The profile that launched the runner may be gone by now."""
    await client.site.start_manager()
    await client.send(workflow_job("queued", 1))
    [runner] = await client.site.launch()
    assert await client.send(workflow_job("in_progress", 2, labels=["old"], runner_name=runner.name)) == "unserved"
    bound = await client.site.ingest.runners.get(runner.name)
    assert bound is not None
    assert (bound.state, bound.job_id) == (RunnerState.BUSY, 2)


# Duplicates


@on_every_store
async def test_duplicates_change_nothing(stored: WebhookClient) -> None:
    """The same delivery again, and the same event by other hooks."""
    for action, first in (("queued", "new"), ("in_progress", "changed"), ("completed", "changed")):
        assert await stored.send(workflow_job(action), X_GitHub_Delivery=action) == first
        for guid in (action, f"{action} of another hook"):
            assert await stored.send(workflow_job(action), X_GitHub_Delivery=guid) == "unchanged"
    assert await stored.tickets() == [7]  # the plan withdraws it


@on_every_store
async def test_duplicates_at_the_same_time_change_it_once(stored: WebhookClient) -> None:
    await stored.site.start_manager()
    for action, first in (("queued", "new"), ("in_progress", "changed"), ("completed", "changed")):
        named: dict[str, Any] = {}
        if action != "queued":
            named = {"runner_name": (await stored.site.ingest.runners.all())[0].name}
        results = await asyncio.gather(*(stored.send(workflow_job(action, **named)) for _ in range(8)))
        assert sorted(results) == sorted([first] + ["unchanged"] * 7)
        if action == "queued":
            assert await stored.tickets() == [7]
            await stored.site.launch()
    [usage] = await stored.site.ingest.usage.all()
    assert list(usage.jobs.values()) == [1]


# Order


@on_every_store
async def test_completed_before_queued_leaves_a_tombstone(stored: WebhookClient) -> None:
    assert await stored.send(workflow_job("completed")) == "unknown"
    for late in ("queued", "waiting", "in_progress", "completed"):
        assert await stored.send(workflow_job(late)) == "unchanged"
        assert await stored.state() == "completed"
    assert (await stored.site.ingest.jobs.active(), await stored.tickets()) == ([], [])


@on_every_store
async def test_in_progress_before_queued(stored: WebhookClient) -> None:
    assert await stored.send(workflow_job("in_progress", runner_name="r")) == "unknown"
    for late in ("queued", "waiting"):
        assert await stored.send(workflow_job(late)) == "unchanged"
    assert (await stored.state(), await stored.tickets()) == ("in_progress", [])


@on_every_store
async def test_gate(stored: WebhookClient) -> None:
    """GitHub sends queued, waiting and queued again, in this order or another."""
    created = workflow_job("queued", status="waiting")
    waiting = workflow_job("waiting", gate=BEFORE)
    released = workflow_job("queued", gate=AFTER)
    assert await stored.send(created) == "new"
    assert (await stored.state(), await stored.tickets()) == ("held_back", [])
    assert await stored.send(released) == "changed"
    assert (await stored.state(), await stored.tickets()) == ("queued", [7])
    assert await stored.send(waiting) == "unchanged"
    assert await stored.state() == "queued"


async def test_gate_that_closes_again(client: WebhookClient) -> None:
    await client.send(workflow_job("queued", gate=BEFORE))
    assert await client.send(workflow_job("waiting", gate=AFTER)) == "changed"
    assert await client.state() == "held_back"
    assert await client.send(workflow_job("queued", gate=LATER)) == "changed"
    assert (await client.state(), await client.tickets()) == ("queued", [7])


async def test_late_waiting_after_two_queued_events(client: WebhookClient) -> None:
    """Both queued events came first; the word of the gate that is older than the second one must not count."""
    for payload in (
        workflow_job("queued"),
        workflow_job("queued", gate=AFTER),
        workflow_job("waiting", gate=BEFORE),
    ):
        await client.send(payload)
    assert await client.state() == "queued"


async def test_resent_completed_of_a_re_run(client: WebhookClient) -> None:
    """A re-run has new ids, and GitHub sends `completed` again for the old ones."""
    for action in ("queued", "in_progress", "completed"):
        await client.send(workflow_job(action, 1))
    await client.send(workflow_job("queued", 2, run_attempt=2))
    for _ in range(3):
        assert await client.send(workflow_job("completed", 1, run_attempt=2)) == "unchanged"
    assert (await client.state(1), await client.state(2)) == ("completed", "queued")
    assert sorted(await client.tickets()) == [1, 2]


async def test_completed_of_check_runs_of_others(client: WebhookClient) -> None:
    """GitHub also sends them for check runs that no runner has; only the id is kept."""
    await client.send(workflow_job("queued", 1))
    assert await client.send(workflow_job("completed", 2, labels=[])) == "unserved"
    assert (await client.state(1), await client.state(2), await client.tickets()) == ("queued", "completed", [1])


# Everything that the fake GitHub sends


async def test_events_of_the_fake_github_in_disorder(client: WebhookClient) -> None:
    """Duplicated, reordered, without organization: every job ends as GitHub has it."""
    fake = client.site.fake
    fake.faults.webhook_duplicated = fake.faults.webhook_reordered = fake.faults.organization_omitted = 0.5
    fake.faults.webhook_reorder_seconds = 0.05

    async def deliver(hook: Any, headers: Any, body: bytes) -> int:
        return (await client.http.post("/webhooks/github", content=body, headers=dict(headers))).status_code

    fake.webhooks.deliver = deliver
    acme = fake.create_organization("acme")
    shop = fake.create_repository(acme, "shop")
    fake.create_organization_hook(acme, "http://manager", "secret")
    run = fake.queue_run(shop, [JobSpec(labels=list(LABELS), duration=60.0)] * 12)
    fake.cancel(fake.queue_run(shop, [JobSpec(labels=list(LABELS), duration=60.0)] * 4))
    await fake.webhooks.drain()
    active = await client.site.ingest.jobs.active()
    assert sorted(job.job_id for job in active) == sorted(job.id for job in run.jobs)
    assert {job.state.value for job in active} == {"queued"}
    assert all(delivery.succeeded for delivery in fake.webhooks.log)
