"""The routes of runners on a server: lists, one job, requeue, limits, and what restricted tokens see."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.github.runner_site import SPEC, RunnerSite, runner_site
from tests.server.support import ApiServer, serving

from jobyard.client import BlockingClient, Client
from jobyard.demo.fake_github import Faults, JobSpec
from jobyard.domain.job import State
from jobyard.domain.runners.github_job import GitHubJobState
from jobyard.domain.runners.runner import RunnerState
from jobyard.errors import JobNotFound, NotFound, NotPossible
from jobyard.github.errors import GitHubRateLimited, GitHubUnavailable
from jobyard.github.tickets import QUEUE
from jobyard.ports.admin_store import Filter
from jobyard.server.routes.table import ALL_ROUTES

BASE = "/v1/runners"


@pytest.fixture
async def site() -> AsyncIterator[RunnerSite]:
    async with runner_site() as made:
        yield made


@pytest.fixture
def api(site: RunnerSite) -> ApiServer:
    made = ApiServer(site.store, ALL_ROUTES)
    made.dependencies.runners = site.services
    return made


async def tickets(site: RunnerSite) -> int:
    page = await site.store.find(Filter(queue=QUEUE, states=(State.PENDING,)), 1000)
    return len(page.jobs)


async def test_lists_and_pages(site: RunnerSite, api: ApiServer) -> None:
    await site.start_manager()
    jobs = [await site.receive(org) for org in ("acme", "beta") for _ in range(12)]
    await site.start_jobs((await site.launch())[:5])
    async with api.client("viewer") as client:
        seen, params = [], {"page_size": 7}
        while True:
            page = (await client.get(f"{BASE}/jobs", params=params)).json()
            seen += [(job["job_id"], job["state"]) for job in page["items"]]
            if "next_page_token" not in page:
                break
            params["page_token"] = page["next_page_token"]
        assert [job_id for job_id, _ in seen] == [job.job_id for job in jobs]
        assert sum(state == "in_progress" for _, state in seen) == 5
        waiting = (await client.get(f"{BASE}/jobs", params={"org": "beta", "state": "queued"})).json()["items"]
        assert {job["org_name"] for job in waiting} == {"beta"}
        assert {job["reason"]["code"] for job in waiting} <= {"starting", "org_limit_reached"}
        busy = (await client.get(f"{BASE}/pods", params={"state": "busy", "page_size": 3})).json()
        assert ([pod["state"] for pod in busy["items"]], "next_page_token" in busy) == (["busy"] * 3, True)
        orgs = (await client.get(f"{BASE}/orgs")).json()
        assert [(org["name"], org["running"], org["waiting"]) for org in orgs["items"]] == [
            ("acme", 10, 2), ("beta", 10, 2),
        ]  # fmt: skip
        assert orgs["totals"]["sentence"].endswith("at most 20 of 100 can run")
        for path, allowed in (("jobs", "held_back, in_progress, queued, unserved"), ("pods", ", ".join(RunnerState))):
            answer = await client.get(f"{BASE}/{path}", params={"state": "nonsense"})
            detail = f"Expected one of {allowed}, got 'nonsense'."
            assert (answer.status_code, answer.json()["errors"]) == (422, [{"pointer": "state", "detail": detail}])
        assert (await client.get(f"{BASE}/jobs", params={"page_token": "YW5vbnNlbnNl"})).status_code == 422


async def test_job_with_its_timeline(site: RunnerSite, api: ApiServer) -> None:
    job = await site.receive("acme")
    async with api.client("viewer") as client:
        found = (await client.get(f"{BASE}/jobs/{job.job_id}")).json()
        assert (found["reason"]["code"], [leg["what"] for leg in found["timeline"]]) == ("no_manager", ["received"])
        for unknown in ("17", "x", "1" * 40, "٣"):
            answer = await client.get(f"{BASE}/jobs/{unknown}")
            assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found")


async def test_restricted_tokens_see_their_organizations(site: RunnerSite, api: ApiServer) -> None:
    await site.start_manager()
    mine, theirs = await site.receive("acme"), await site.receive("beta")
    await site.launch()
    scopes: list[tuple[dict[str, Any], set[str]]] = [
        ({"groups": ["acme"]}, {"acme"}),
        ({"groups": ["acme"], "queues": [QUEUE]}, {"acme"}),
        ({"queues": ["mail"]}, set()),
        ({"kinds": ["mail"]}, set()),
    ]
    for scope, expected in scopes:
        async with api.client("operator", **scope) as client:
            for what, name in (("jobs", "org_name"), ("pods", "org_name"), ("orgs", "name")):
                found = (await client.get(f"{BASE}/{what}")).json()
                assert {item[name] for item in found["items"]} == expected, (scope, what)
            assert (await client.get(f"{BASE}/orgs")).json()["totals"] is None
            assert (await client.get(f"{BASE}/jobs/{theirs.job_id}")).status_code == 404
            assert (await client.get(f"{BASE}/jobs/{mine.job_id}")).is_success == bool(expected)
            asked = {"repo": "beta/shop", "job_id": theirs.job_id}
            assert (await client.post(f"{BASE}/jobs/requeue", json=asked)).status_code == 404
    async with api.client("viewer", queues=[QUEUE]) as client:
        assert (await client.get(f"{BASE}/orgs")).json()["totals"]["running"] == 2


async def test_requeue(site: RunnerSite, api: ApiServer) -> None:
    job = site.queue_on_github()
    async with api.client("operator") as client:

        async def requeue(repo: str = "acme/shop", job_id: int = job.id) -> tuple[int, Any]:
            answer = await client.post(f"{BASE}/jobs/requeue", json={"repo": repo, "job_id": job_id})
            return answer.status_code, answer.json()

        status, found = await requeue()
        assert (status, found["state"], found["profile"], await tickets(site)) == (200, "queued", "linux", 1)
        # Lost with a wrong tombstone: entered again, with a ticket although its first one holds its unique key.
        await site.receive("acme", GitHubJobState.COMPLETED, job_id=job.id)
        await site.launch()
        assert (await requeue())[0] == 200
        assert await tickets(site) == 1
        assert (await requeue(job_id=99))[0] == 404
        assert (await requeue("acme/other"))[0] == 404
        gpu = site.queue_on_github(spec=JobSpec(labels=["gpu"]))
        status, found = await requeue(job_id=gpu.id)
        assert (status, found["code"]) == (409, "not_possible")
        assert "no runner profile" in found["detail"]
        site.fake.cancel(job.run)
        status, found = await requeue()
        assert (status, "cancelled" in found["detail"]) == (409, True)
        site.fake.faults = Faults(server_error=1.0)
        assert (await requeue())[0] == 502
        for wrong in ("acme", "a/b/c", "acme/shop?x", ""):
            assert (await requeue(wrong))[0] == 422
    entries = [entry async for entry in api.dependencies.operations.audit_log()]
    assert [(entry.action, entry.target) for entry in entries] == [("runners.requeue", f"acme/shop/{job.id}")] * 2


async def test_limits_of_organizations_at_run_time(site: RunnerSite, api: ApiServer) -> None:
    await site.start_manager()
    for _ in range(30):
        await site.receive("acme")
    assert len(await site.launch()) == 10
    async with api.client("operator") as client:
        at = f"/v1/queues/{QUEUE}/groups/acme/limit"
        assert (await client.put(at, json={"limit": 25})).status_code == 204
        assert len(await site.launch()) == 15
        [org] = (await client.get(f"{BASE}/orgs")).json()["items"]
        assert (org["limit"], org["own_limit"], org["running"], org["waiting"]) == (25, 25, 25, 5)
        assert (await client.delete(at)).status_code == 204
        [org] = (await client.get(f"{BASE}/orgs")).json()["items"]
        assert (org["limit"], org["own_limit"], org["running"]) == (10, None, 25)
    assert await site.launch() == []


async def test_without_runners_every_route_says_what_to_configure(site: RunnerSite) -> None:
    api = ApiServer(site.store, ALL_ROUTES)
    async with api.client("operator") as client:
        for path in ("jobs", "jobs/1", "pods", "orgs"):
            answer = await client.get(f"{BASE}/{path}")
            assert (answer.status_code, "runners.profiles" in answer.json()["detail"]) == (404, True)


async def test_client(site: RunnerSite, api: ApiServer) -> None:
    await site.start_manager()
    job = site.queue_on_github(spec=SPEC)
    async with serving(api.app) as url, Client(url, await api.token("operator")) as client:
        entered = await client.requeue_runner_job("acme/shop", job.id)
        assert entered.job_id == job.id
        await site.launch()
        [found] = [each async for each in client.runner_jobs(org="acme", state="queued")]
        assert found.reason is not None
        assert found.reason.code == "starting"
        assert [pod.requested_job_id async for pod in client.runner_pods(org="acme")] == [job.id]
        assert [pod async for pod in client.runner_pods(state="busy")] == []
        assert (await client.runner_orgs()).items[0].starting == 1
        assert (await client.runner_job(job.id)).timeline[0].what == "received"
        with pytest.raises(JobNotFound):
            await client.runner_job(17)
        with pytest.raises(NotFound):
            await client.requeue_runner_job("acme/shop", 17)
        site.fake.cancel(job.run)
        with pytest.raises(NotPossible):
            await client.requeue_runner_job("acme/shop", job.id)


async def test_requeue_while_github_hangs_names_github(
    site: RunnerSite, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobyard.github.requeue.ANSWER_SECONDS", 0.3)
    job = site.queue_on_github()
    site.fake.faults = Faults(hanging=1.0)
    # Its own timeout is shorter than the time that the server gives GitHub.
    async with serving(api.app) as url, Client(url, await api.token("operator"), timeout=0.1) as client:
        with pytest.raises(GitHubUnavailable, match="GitHub did not answer"):
            await client.requeue_runner_job("acme/shop", job.id)
        site.fake.faults = Faults(primary_limit=1.0)
        with pytest.raises(GitHubRateLimited):
            await client.requeue_runner_job("acme/shop", job.id)


def test_blocking_client_has_the_same_verbs() -> None:
    for verb in ("runner_jobs", "runner_job", "runner_pods", "runner_orgs", "requeue_runner_job"):
        assert getattr(BlockingClient, verb).__name__ == verb
