"""Data that only the dashboard needs: counts, clones, dead letters in groups, operations, workers, audit, sessions."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2 as httpx
import msgspec
import pytest
from tests.server.sse import listening
from tests.server.support import ApiServer, api_server, ids, serving, submit_job
from tests.support import eventually

from jobyard import Context, Jobyard
from jobyard.api.schemas.charts import ConfigurationItem
from jobyard.api.schemas.jobs import JobFilter
from jobyard.app.declarations import declarations_of
from jobyard.config.sections import ServerSection
from jobyard.domain.access import OWNER
from jobyard.domain.ids import new_id
from jobyard.domain.job import NewJob
from jobyard.domain.outcome import Failed
from jobyard.domain.state import Settlement, judge
from jobyard.operations.lost_workers import remember_worker
from jobyard.operations.sessions import Sessions
from jobyard.operations.tokens import Tokens
from jobyard.ports.admin_store import Action
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.server.bulk_operations import COLLECTION, TAKEOVER_MS, BulkOperations
from jobyard.stores.memory import MemoryStore
from jobyard.testing.clock import ManualClock


async def fail_all(server: ApiServer, message: str, queue: str = "mail") -> None:
    leases = (await server.store.exchange("w", [], (queue,), 1000, 60.0)).leases
    failed = [Settlement(each.key, judge(each, Failed(message=message, retry=False), worker="w")) for each in leases]
    await server.store.exchange("w", failed, (queue,), 0, 60.0)


async def finished_operation(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    response = await client.post("/v1/operations", json=body)
    assert response.status_code == 202, response.text
    path = response.headers["location"]

    async def is_over() -> bool:
        return bool((await client.get(path)).json()["state"] != "running")

    await eventually(is_over)
    found: dict[str, Any] = (await client.get(path)).json()
    return found


async def test_counts_by_state() -> None:
    async with api_server() as server, server.client("admin") as client:
        for number in range(6):
            await submit_job(client, queue="mail", group="a" if number % 2 else "b", payload={"n": number})
        await submit_job(client, queue="letters")
        await server.store.exchange("w", [], ("mail",), 1, 60.0)

        async def counts(**params: Any) -> Any:
            response = await client.get("/v1/jobs/counts", params=params)
            assert response.status_code == 200, response.text
            return response.json()

        found = await counts()
        assert found["counts"] == {
            "PENDING": 6,
            "RUNNING": 1,
            "COMPLETED": 0,
            "FAILED": 0,
            "TIMEOUT": 0,
            "CANCELLED": 0,
        }
        assert (found["is_complete"], found["cap"]) == (True, 100_000)
        assert (await counts(queue="mail"))["counts"]["PENDING"] == 5
        assert (await counts(group="a", state="PENDING"))["counts"] == {"PENDING": 3}
        assert (await counts(payload="n:3"))["counts"]["PENDING"] == 1
        async with server.client("viewer", groups=("a",)) as viewer:
            assert (await viewer.get("/v1/jobs/counts")).json()["counts"]["PENDING"] == 3


async def test_search_by_payload_and_by_owner() -> None:
    async with api_server() as server, server.client("operator") as client, server.client("admin") as other:
        mine = await submit_job(client, payload={"user": {"id": 42}})
        theirs = await submit_job(other, payload={"user": {"id": 42}})
        await submit_job(other, payload={"user": {"id": 4}})
        assert await ids(client, payload="user.id:42") == [theirs, mine]
        assert await ids(client, payload="user.id:42", mine="true") == [mine]
        assert (await client.get("/v1/jobs", params={"payload": "no colon"})).status_code == 422


async def test_clone_a_job() -> None:
    async with api_server() as server, server.client("operator") as client:
        first = await submit_job(client, queue="mail", group="acme", priority=3, payload={"a": 1}, tags=["red"])
        made = await client.post(f"/v1/jobs/{first}/clone", json={"priority": 9})
        assert made.status_code == 202
        job = (await client.get(made.headers["location"])).json()
        shown = {name: job[name] for name in ("queue", "group", "priority", "payload", "tags", "state")}
        expected = {"queue": "mail", "group": "acme", "priority": 9, "payload": {"a": 1}, "tags": ["red"]}
        assert shown == expected | {"state": "PENDING"}
        assert job["id"] != first
        assert [each.action for each in await server.dependencies.operations.audit.read()] == ["job.clone"]
        async with server.client("operator", queues=("mail",)) as scoped:
            elsewhere = await scoped.post(f"/v1/jobs/{first}/clone", json={"queue": "letters"})
            assert elsewhere.json()["code"] == "out_of_scope"


async def test_a_clone_with_another_payload_is_checked_as_a_new_job_is() -> None:
    yard = Jobyard("memory://")

    @yard.job(timeout=60)
    async def send(ctx: Context, to: str) -> None: ...

    @yard.job()
    async def old(ctx: Context, to: str) -> None: ...

    async with api_server(job_factory=declarations_of(yard).job_factory) as server, server.client("operator") as client:
        first = await submit_job(client, "send", payload={"to": "ann"})
        wrong = await client.post(f"/v1/jobs/{first}/clone", json={"payload": {"too": "bob"}})
        assert (wrong.status_code, [each["pointer"] for each in wrong.json()["errors"]]) == (422, ["/payload/too"])
        made = await client.post(f"/v1/jobs/{first}/clone", json={"payload": {"to": "bob"}})
        job = (await client.get(made.headers["location"])).json()
        assert (job["payload"], job["timeout_seconds"], job["max_attempts"]) == ({"to": "bob"}, 60, 3)
        second = await submit_job(client, "old", payload={"to": "ann"})
        declarations_of(yard).tasks.pop("old")
        gone = await client.post(f"/v1/jobs/{second}/clone", json={})
        assert (gone.status_code, gone.json()["code"]) == (422, "unknown_kind")
        assert await ids(client) == [second, job["id"], first]


async def test_dead_letters_are_grouped_and_redriven_with_progress() -> None:
    async with api_server() as server, server.client("operator") as client:
        for number in range(3):
            await submit_job(client, queue="mail")
            await fail_all(server, f"Cannot reach host {number}")
        await submit_job(client, queue="mail")
        await fail_all(server, "Out of paper")
        page = (await client.get("/v1/dead-letters/groups")).json()
        assert [(group["count"], group["error"]) for group in page["items"]] == [
            (3, "Cannot reach host …"),
            (1, "Out of paper"),
        ]
        assert page["examined"] == 4
        assert "next_page_token" not in page
        where = {"kind": "mail", "state": ["FAILED", "TIMEOUT"], "error": "Cannot reach host …"}
        done = await finished_operation(client, action="retry", filter=where)
        assert (done["state"], done["changed"], done["matching"]) == ("done", 3, 3)
        left = (await client.get("/v1/dead-letters/groups")).json()["items"]
        assert [group["error"] for group in left] == ["Out of paper"]
        actions = [each.action for each in await server.dependencies.operations.audit.read()]
        assert actions == ["operation.start", "jobs.retry"]


async def test_an_operation_changes_all_that_match_and_no_more() -> None:
    async with api_server() as server, server.client("operator") as client:
        for number in range(450):
            await submit_job(client, queue="mail", group="a" if number % 3 else "b")
        done = await finished_operation(client, action="cancel", filter={"group": "a"}, reason="closed")
        assert (done["changed"], done["unchanged"], done["state"]) == (300, 0, "done")
        assert len(await ids(client, state="PENDING")) == 150
        [listed] = (await client.get("/v1/operations")).json()["items"]
        assert listed["id"] == done["id"]
        some = (await ids(client, state="PENDING"))[:5]
        done = await finished_operation(client, action="prioritise", ids=[*some, "unknown"], priority=4)
        assert (done["changed"], done["ids_given"]) == (5, 6)
        for wrong in ({"action": "cancel"}, {"action": "cancel", "filter": {}}, {"action": "prioritise", "ids": some}):
            assert (await client.post("/v1/operations", json=wrong)).status_code == 422
        async with server.client("viewer") as viewer:
            assert (await viewer.post("/v1/operations", json={"action": "cancel", "ids": some})).status_code == 403
        async with server.client("operator", queues=("letters",)) as scoped:
            assert (await scoped.get("/v1/operations")).json() == {"items": []}
            assert (await scoped.get(f"/v1/operations/{done['id']}")).status_code == 404


async def test_another_server_continues_an_operation() -> None:
    async with api_server() as server, server.client("operator") as client:
        for _ in range(5):
            await submit_job(client, queue="mail")
        dependencies = server.dependencies
        dead = BulkOperations(server.store, dependencies.operations, lambda: None)
        fields = {"ids": None, "reason": "", "priority": 0, "matching": 5, "matching_capped": False}
        record = await dead.begin(OWNER, action=Action.CANCEL, filter=JobFilter(queue="mail"), **fields)
        await dead.stop()  # before its first step
        await dependencies.bulk_operations.take_over()
        found = await server.store.fetch(COLLECTION, record.id)
        assert found is not None
        assert found.version == 1  # not taken over: its server may still be alive
        old = msgspec.structs.replace(record, updated_at=record.updated_at - TAKEOVER_MS - 1)
        await server.store.put(COLLECTION, record.id, msgspec.json.encode(old), expect=1, expire_seconds=60)
        await dependencies.bulk_operations.take_over()

        async def is_done() -> bool:
            return bool((await client.get(f"/v1/operations/{record.id}")).json()["state"] == "done")

        await eventually(is_done)
        assert len(await ids(client, state="CANCELLED")) == 5


async def test_a_cancelled_operation_ends() -> None:
    async with api_server() as server, server.client("operator") as client:
        dependencies = server.dependencies
        dead = BulkOperations(server.store, dependencies.operations, lambda: None)
        fields = {"ids": None, "reason": "", "priority": 0, "matching": 5, "matching_capped": False}
        record = await dead.begin(OWNER, action=Action.CANCEL, filter=JobFilter(queue="mail"), **fields)
        await dead.stop()  # before its first step
        ended = (await client.post(f"/v1/operations/{record.id}/cancel")).json()
        assert ended["state"] == "cancelled"
        assert (await client.post(f"/v1/operations/{record.id}/cancel")).json()["state"] == "cancelled"
        assert (await client.get("/v1/operations/not-an-id")).status_code == 404


async def test_workers_with_their_jobs_and_lost_ones() -> None:
    async with api_server() as server, server.client("viewer") as client, server.client("operator") as operator:
        job = await submit_job(operator, queue="mail")
        info = WorkerInfo(id="w1", host="h", pid=1, queues=(), concurrency=4, memory_bytes=1 << 20, cpu_percent=12.5)
        await server.store.heartbeat(info, 60)
        await remember_worker(server.store, info)
        await remember_worker(server.store, msgspec.structs.replace(info, id="gone"))
        await server.store.exchange("w1", [], ("mail",), 1, 60.0)
        plain = (await client.get("/v1/workers")).json()["items"]
        assert [(each["id"], each["memory_bytes"], each["cpu_percent"]) for each in plain] == [("w1", 1 << 20, 12.5)]
        assert "jobs" not in plain[0]
        full = (await client.get("/v1/workers", params={"lost": "true", "jobs": "true"})).json()["items"]
        assert [(each["id"], each["is_lost"]) for each in full] == [("w1", False), ("gone", True)]
        assert [each["id"] for each in full[0]["jobs"]] == [job]


async def test_jobs_that_a_worker_handed_off_are_marked() -> None:
    async with api_server() as server, server.client("viewer") as client:
        await server.store.heartbeat(WorkerInfo(id="w1", host="h", pid=1, queues=(), concurrency=4), 60)
        await server.store.adopt(NewJob(id=new_id(), kind="runner", queue="runners"), "w1", "pod-1")
        await server.store.insert([NewJob(id=new_id(), kind="send", queue="mail")])
        await server.store.exchange("w1", [], ("mail",), 1, 60.0)
        [worker] = (await client.get("/v1/workers", params={"jobs": "true"})).json()["items"]
        assert {each["kind"]: each["is_handed_off"] for each in worker["jobs"]} == {"runner": True, "send": False}


async def test_schedules_with_their_last_runs() -> None:
    async with api_server() as server, server.client("operator") as client:
        body = {"name": "nightly", "expression": "@daily", "kind": "report"}
        assert (await client.post("/v1/schedules", json=body)).status_code == 201
        [plain] = (await client.get("/v1/schedules")).json()["items"]
        assert "recent" not in plain
        [shown] = (await client.get("/v1/schedules", params={"history": 20})).json()["items"]
        assert shown["recent"] == []


async def test_the_audit_log_newest_first_and_of_one_target() -> None:
    async with api_server() as server, server.client("admin") as client:
        for number in range(7):
            await client.put(f"/v1/queues/mail/groups/g{number % 2}/limit", json={"limit": number})
            await submit_job(client, queue="mail")
        assert (await client.get("/v1/audit")).status_code == 200
        await client.post("/v1/queues/mail/pause")
        seen: list[tuple[str, Any]] = []
        params: dict[str, Any] = {"newest": "true", "page_size": 3}
        while True:
            page = (await client.get("/v1/audit", params=params)).json()
            seen += [(each["action"], each["details"].get("limit")) for each in page["items"]]
            if "next_page_token" not in page:
                break
            params["page_token"] = page["next_page_token"]
        forwards = (await client.get("/v1/audit", params={"page_size": 100})).json()["items"]
        assert seen == [(each["action"], each["details"].get("limit")) for each in reversed(forwards)]
        of_group = (await client.get("/v1/audit", params={"newest": "true", "target": "mail/g1"})).json()["items"]
        assert {each["target"] for each in of_group} == {"mail/g1"}
        paged: list[Any] = []
        params = {"newest": "true", "target": "mail/g1", "page_size": 1}
        while True:
            page = (await client.get("/v1/audit", params=params)).json()
            paged += page["items"]
            if "next_page_token" not in page:
                break
            params["page_token"] = page["next_page_token"]
        assert paged == of_group, "a page that ends in the middle of a stretch loses none"
        of_queue = (await client.get("/v1/audit", params={"newest": "true", "target": "mail"})).json()["items"]
        assert {each["target"] for each in of_queue} == {"mail", "mail/g0", "mail/g1"}


async def test_the_configuration_is_for_administrators() -> None:
    async with api_server() as server, server.client("admin") as admin, server.client("operator") as operator:
        server.dependencies.configuration = (ConfigurationItem(key="server.port", value=8080, origin="default"),)
        [item] = (await admin.get("/v1/configuration")).json()["items"]
        assert item == {"key": "server.port", "value": 8080, "origin": "default"}
        assert (await operator.get("/v1/configuration")).status_code == 403


async def test_a_login_link_works_once_from_this_machine() -> None:
    async with api_server(ServerSection(root_path="/jobs")) as server, serving(server.app) as url:
        info, _ = await server.tokens.create("first", "admin")
        sessions = server.authenticator.sessions  # type: ignore[attr-defined]
        link = f"/login/{await sessions.create_link(info.id)}"
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            first, second = await asyncio.gather(client.get(link), client.get(link))
            assert sorted((first.status_code, second.status_code)) == [303, 401]
            opened = first if first.status_code == 303 else second
            assert opened.headers["location"] == "/", "the prefix is added on the way out"
            cookie = opened.headers["set-cookie"].partition(";")[0]
            me = (await client.get("/v1/me", headers={"Cookie": cookie})).json()
            assert (me["role"], me["root_path"]) == ("admin", "/jobs")
            assert me["session_expires_at"] > "2020"
            assert (await client.get("/login/" + "x" * 43)).status_code == 401
        transport = httpx.ASGITransport(server.app, client=("10.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://jobyard.test", timeout=60) as far:
            assert (await far.get(f"/login/{await sessions.create_link(info.id)}")).status_code == 401


@pytest.mark.parametrize(("seconds", "opens"), [(59, True), (61, False)])
async def test_a_login_link_is_valid_for_a_minute(seconds: int, opens: bool) -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    tokens = Tokens(store)
    info, _ = await tokens.create("first", "admin")
    sessions = Sessions(store, tokens)
    code = await sessions.create_link(info.id)
    clock.advance(seconds)
    assert (await sessions.use_link(code) is not None) is opens


async def test_a_login_link_of_a_revoked_token_opens_nothing() -> None:
    async with api_server() as server:
        info, _ = await server.tokens.create("first", "admin")
        sessions = server.authenticator.sessions  # type: ignore[attr-defined]
        code = await sessions.create_link(info.id)
        await server.tokens.revoke(info.id)
        assert await sessions.use_link(code) is None


async def test_the_numbers_of_the_overview_are_streamed() -> None:
    async with api_server() as server, server.client("operator") as client, serving(server.app) as url:
        headers = {"Authorization": f"Bearer {await server.token('viewer')}"}
        async with (
            httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as viewer,
            listening(viewer, "/v1/events?type=stats") as stream,
        ):
            await eventually(lambda: stream.first("snapshot"))
            await submit_job(client, queue="mail")
            await eventually(lambda: stream.first("stats", lambda data: data["waiting"] == 1))
            assert set(stream.types()) == {"snapshot", "stats"}
