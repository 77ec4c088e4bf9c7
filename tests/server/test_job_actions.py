"""Actions over HTTP on jobs, dead letters, queues, groups and workers; each is audited."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote, unquote

import httpx2 as httpx
import msgspec
import pytest
from tests.conformance.support import claim_one, new, settle
from tests.server.support import ApiServer, api_server, ids, serving, submit_job

from jobyard.domain.job import QueueSettings
from jobyard.domain.outcome import Failed, Park
from jobyard.operations.audit_log import Audit
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.server.pagination import encode_page_token


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with api_server() as made:
        yield made


async def fail(api: ApiServer) -> None:
    await settle(api.store, await claim_one(api.store), Failed(message="no", retry=False))


async def written(api: ApiServer) -> list[tuple[str, str]]:
    return [(entry.action, entry.target) for entry in await Audit(api.store).read()]


async def test_actions_on_one_job(api: ApiServer) -> None:
    async with api.client("operator") as client:
        job_id = await submit_job(client, delay_seconds=3600)
        path = f"/v1/jobs/{job_id}"
        assert (await client.post(f"{path}/prioritise", json={"priority": 7})).json()["priority"] == 7
        assert (await client.post(f"{path}/run-now")).json()["state"] == "PENDING"
        again = await client.post(f"{path}/run-now")
        assert (again.status_code, again.json()["code"]) == (409, "not_possible")
        cancelled = await client.post(f"{path}/cancel", json={"reason": "changed my mind"})
        assert (cancelled.json()["state"], cancelled.json()["reason"]) == ("CANCELLED", "changed my mind")
        assert (await client.post(f"{path}/retry")).json()["state"] == "PENDING"
        assert (await client.delete(path)).status_code == 204
        assert (await client.get(path)).json()["code"] == "job_not_found"
        assert (await client.delete(path)).status_code == 404
    assert await written(api) == [
        (f"job.{action}", job_id) for action in ("prioritise", "run_now", "cancel", "retry", "delete")
    ]


async def test_a_signal_wakes_a_parked_job(api: ApiServer) -> None:
    async with api.client("operator") as client:
        job_id = await submit_job(client)
        await settle(api.store, await claim_one(api.store), Park("approved"))
        path = f"/v1/jobs/{job_id}/signal"
        assert (await client.post(path, json={"name": "other"})).json() == {"woke": False}
        assert (await client.post(path, json={"name": "approved", "data": {"by": "Ann"}})).json() == {"woke": True}
    assert (await claim_one(api.store)).signal == b'{"by":"Ann"}'


async def test_bulk_by_ids_or_filter(api: ApiServer) -> None:
    async with api.client("operator") as client:
        made = [await submit_job(client, queue=queue) for queue in "aaabb"]
        response = await client.post("/v1/jobs/actions", json={"action": "cancel", "ids": [made[0], made[0], "nobody"]})
        assert response.json() == {
            **{"changed": 1, "unchanged": 0, "not_found": 1},
            **{"changed_ids": [made[0]], "unchanged_ids": [], "not_found_ids": ["nobody"]},
        }
        response = await client.post("/v1/jobs/actions", json={"action": "cancel", "filter": {"queue": "a"}})
        assert response.json() == {"changed": 2, "unchanged": 1}
        assert len(await ids(client, state="PENDING")) == 2
        deleted = 0
        order = {"action": "delete", "filter": {"state": ["CANCELLED", "PENDING"]}, "limit": 2}
        for _ in range(10):
            body = (await client.post("/v1/jobs/actions", json=order)).json()
            deleted += body["changed"]
            if "next_page_token" not in body:
                break
            order["page_token"] = body["next_page_token"]
        assert deleted == 5
        assert await ids(client) == []
    assert [action for action, _ in await written(api)][:3] == ["jobs.cancel", "jobs.cancel", "jobs.delete"]


@pytest.mark.parametrize("role", ["operator", "submitter"])
async def test_bulk_by_ids_in_pages_reports_each_once(api: ApiServer, role: str) -> None:
    async with api.client(role) as client:
        made = [await submit_job(client) for _ in range(5)]
        await client.post(f"/v1/jobs/{made[1]}/cancel")
        order = {"action": "cancel", "ids": [*made, "nobody", "none"], "limit": 3}
        totals: dict[str, list[str]] = {"changed_ids": [], "unchanged_ids": [], "not_found_ids": []}
        steps = 0
        while True:
            steps += 1
            response = (await client.post("/v1/jobs/actions", json=order)).json()
            for name in totals:
                totals[name] += response[name]
            if "next_page_token" not in response:
                break
            order["page_token"] = response["next_page_token"]
        assert steps == 3
        changed = [made[0], *made[2:]]
        assert totals == {"changed_ids": changed, "unchanged_ids": [made[1]], "not_found_ids": ["nobody", "none"]}
        order["page_token"] = encode_page_token("99", "/v1/jobs/actions\nby ids")
        assert (await client.post("/v1/jobs/actions", json=order)).json()["code"] == "bad_page_token"


@pytest.mark.parametrize("choice", [{}, {"filter": {}}, {"ids": [], "filter": {"queue": "a"}}])
async def test_bulk_without_ids_or_filter_is_rejected(api: ApiServer, choice: dict[str, object]) -> None:
    async with api.client("admin") as client:
        job_id = await submit_job(client)
        response = await client.post("/v1/jobs/actions", json={"action": "delete", **choice})
        assert response.status_code == 422
        assert response.json()["errors"][0]["pointer"].startswith("/")
        assert await ids(client) == [job_id]


async def test_bulk_prioritise_needs_a_priority(api: ApiServer) -> None:
    async with api.client("operator") as client:
        job_id = await submit_job(client, priority=4)
        refused = await client.post("/v1/jobs/actions", json={"action": "prioritise", "ids": [job_id]})
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/priority")
        assert (await client.get(f"/v1/jobs/{job_id}")).json()["priority"] == 4
        order = {"action": "prioritise", "priority": 0, "ids": [job_id]}
        assert (await client.post("/v1/jobs/actions", json=order)).json()["changed"] == 1
        assert (await client.get(f"/v1/jobs/{job_id}")).json()["priority"] == 0


async def test_dead_letters_are_listed_and_redriven(api: ApiServer) -> None:
    async with api.client("operator") as client:
        dead = [await submit_job(client, group=group) for group in ("a", "b", "b")]
        for _ in dead:
            await fail(api)
        cancelled = await submit_job(client)
        await client.post(f"/v1/jobs/{cancelled}/cancel")
        assert set(await ids(client, "/v1/dead-letters", page_size=1)) == set(dead)
        assert len(await ids(client, "/v1/dead-letters", group="b")) == 2
        assert await ids(client, "/v1/dead-letters", state="CANCELLED") == []
        path = "/v1/dead-letters/redrive"
        body = (await client.post(path, json={"ids": [dead[0], cancelled, "nobody"]})).json()
        assert (body["changed_ids"], body["unchanged_ids"], body["not_found_ids"]) == (
            [dead[0]],
            [cancelled],
            ["nobody"],
        )
        assert (await client.post(path, json={"filter": {"group": "b"}})).json() == {"changed": 2, "unchanged": 0}
        assert await ids(client, "/v1/dead-letters") == []
        assert set(await ids(client, state="PENDING")) == set(dead)


async def test_queues(api: ApiServer) -> None:
    async with api.client("operator") as client, api.client("admin") as admin:
        assert (await client.get("/v1/queues/mail")).json()["code"] == "queue_not_found"
        made = await client.patch("/v1/queues/mail", json={"max_running": 3})
        assert made.json()["settings"]["max_running"] == 3
        assert made.json()["settings"]["keep_completed"] == 100
        refused = await client.patch("/v1/queues/mail", json={"keep_completed": 0})
        assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
        changed = await admin.patch("/v1/queues/mail", json={"keep_completed": 7})
        assert changed.json()["settings"]["keep_completed"] == 7
        kept = (await client.patch("/v1/queues/mail", json={"max_waiting": 9})).json()["settings"]
        assert (kept["keep_completed"], kept["max_waiting"], kept["max_running"]) == (7, 9, 3)
        lifted = (await client.patch("/v1/queues/mail", json={"max_running": None})).json()["settings"]
        assert (lifted["max_waiting"], lifted["max_running"]) == (9, None)
        for name in ("keep_completed", "keep_failed", "keep_completed_seconds", "keep_failed_seconds", "keep_at_most"):
            assert (await admin.patch("/v1/queues/mail", json={name: None})).status_code == 422
        await submit_job(client, queue="mail")
        assert (await client.post("/v1/queues/mail/pause")).json()["paused"] is True
        assert (await client.post("/v1/queues/mail/resume")).json()["paused"] is False
        assert [(queue["name"], queue["waiting"]) for queue in (await client.get("/v1/queues")).json()["items"]] == [
            ("mail", 1)
        ]
        assert (await client.post("/v1/queues/mail/drain")).json() == {"removed": 1}
        assert (await client.post("/v1/queues/nowhere/drain")).status_code == 404
    actions = [action for action, _ in await written(api)]
    assert actions == ["queue.configure"] * 4 + ["queue.pause", "queue.resume", "queue.drain"]


async def test_groups(api: ApiServer) -> None:
    async with api.client("operator") as client:
        await client.patch("/v1/queues/mail", json={"max_per_group": 10})
        path = "/v1/queues/mail/groups"
        assert (await client.put(f"{path}/acme/limit", json={"limit": 2})).status_code == 204
        assert (await client.post(f"{path}/acme/pause")).status_code == 204
        for group in ("b", "c", "d", None):
            await submit_job(client, queue="mail", group=group)
        [one] = [group for group in (await client.get(path)).json()["items"] if group["name"] == "acme"]
        assert (one["limit"], one["effective_limit"], one["paused"]) == (2, 2, True)
        names: list[str | None] = []
        link: str | None = f"{path}?page_size=1"
        while link:
            response = await client.get(link)
            names += [group["name"] for group in response.json()["items"]]
            link = response.headers["link"][1:].partition(">")[0] if "link" in response.headers else None
        assert names == [None, "acme", "b", "c", "d"]
        await client.delete(f"{path}/acme/limit")
        await client.post(f"{path}/acme/resume")
        assert "acme" not in [group["name"] for group in (await client.get(path)).json()["items"]]
        assert (await client.put(f"{path}/acme/limit", json={"limit": -1})).status_code == 422
        assert (await client.put("/v1/queues/nowhere/groups/a/limit", json={"limit": 1})).status_code == 404
    groups = [each for each in await written(api) if each[0].startswith("group")]
    assert groups == [(f"group.{what}", "mail/acme") for what in ("limit", "pause", "unlimit", "resume")]


@pytest.mark.parametrize("group", ["org/repository", "/", "a%2Fb", "ä ?#&+;"])
async def test_any_name_can_be_in_a_path(api: ApiServer, group: str) -> None:
    async with api.client("operator") as client, serving(api.app) as url:
        await client.patch("/v1/queues/run%2Fners", json={})
        path = f"{url}/v1/queues/run%2fners/groups/{quote(group, safe='')}/limit"
        async with httpx.AsyncClient(headers=client.headers, timeout=60) as other:
            assert (await other.put(path, json={"limit": 3})).status_code == 204
        [only] = await api.store.groups("run/ners")
        assert (only.name, only.limit) == (group, 3)


@pytest.mark.parametrize("queue", ["작업", "a/b", "a b?#&"])
async def test_the_link_to_the_next_page_works_for_any_name(api: ApiServer, queue: str) -> None:
    for group in "abc":
        await api.store.insert([new(queue=queue, group=group)])
    async with api.client("viewer") as client, serving(api.app) as url:
        at, found = f"/v1/queues/{quote(queue, safe='')}/groups?page_size=2", []
        async with httpx.AsyncClient(headers=client.headers, timeout=60) as other:
            while at:
                answer = await other.get(url + at)
                found += [group["name"] for group in answer.json()["items"]]
                at = answer.headers.get("link", "").partition(">")[0].removeprefix("<")
    assert found == ["a", "b", "c"]


async def test_a_control_character_is_not_a_slash(api: ApiServer) -> None:
    async with api.client("operator") as client:
        await client.patch("/v1/queues/a%2Fb", json={})
        assert (await client.get("/v1/queues/a%2fb")).json()["name"] == "a/b"
        for path in ("/v1/queues/a%1Fb", "/v1/queues/a%1fb", "/v1/queues%1Fa"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()["code"]) == (422, "bad_input")


@pytest.mark.parametrize("name", ["%2E%2E", "%2E", "%20", "%C2%A0"])
async def test_names_that_a_path_cannot_hold_are_rejected(api: ApiServer, name: str) -> None:
    async with api.client("operator") as client:
        assert (await client.patch(f"/v1/queues/{name}", json={})).status_code in (404, 422)
        answer = await client.post("/v1/jobs", json={"kind": "mail", "queue": unquote(name)})
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/queue")
    assert await api.store.queues() == []


async def test_queues_are_paged_by_name(api: ApiServer) -> None:
    for name in ("b", "a", "작업", "c/d"):
        await api.store.configure(name, QueueSettings())
    async with api.client("viewer") as client:
        at, pages = "/v1/queues?page_size=3", []
        while at:
            answer = await client.get(at)
            pages.append([queue["name"] for queue in answer.json()["items"]])
            at = answer.headers.get("link", "").partition(">")[0].removeprefix("<")
    assert pages == [["a", "b", "c/d"], ["작업"]]


async def test_kinds_without_an_app(api: ApiServer) -> None:
    async with api.client("viewer") as client:
        assert (await client.get("/v1/kinds")).json() == {"items": [], "any_kind": True}


async def test_workers_are_listed_quieted_and_stopped(api: ApiServer) -> None:
    worker = WorkerInfo(id="w1", host="here", pid=7, queues=("mail",), concurrency=2)
    await api.store.heartbeat(worker, 60)
    await api.store.heartbeat(msgspec.structs.replace(worker, id="w2", queues=()), 60)
    async with (
        api.client("operator") as client,
        api.client("operator", queues=["mail"]) as confined,
        api.client("operator", queues=["other"]) as other,
    ):
        [first, second] = (await client.get("/v1/workers")).json()["items"]
        assert (first["id"], first["queues"], first["concurrency"], first["quiet"]) == ("w1", ["mail"], 2, False)
        assert second["id"] == "w2"
        assert [each["id"] for each in (await other.get("/v1/workers")).json()["items"]] == ["w2"]
        assert (await client.post("/v1/workers/w2/quiet")).status_code == 204
        assert (await confined.post("/v1/workers/w1/stop")).status_code == 204
        assert (await confined.post("/v1/workers/w2/stop")).status_code == 403
        assert (await other.post("/v1/workers/w1/stop")).json()["code"] == "worker_not_found"
        assert (await client.post("/v1/workers/nobody/stop")).json()["code"] == "worker_not_found"
    assert await written(api) == [("worker.quiet", "w2"), ("worker.stop", "w1")]
