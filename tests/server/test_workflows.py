"""`/api/v2/workflows`: the envelope, the platform of a run, what is seen of it, and who may do what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2 as httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.server.workflow_support import EXECUTE, WorkflowServer, execute, run_of, workflow_server
from tests.support import eventually

from jobyard import Context, WorkflowContext
from jobyard.domain.instant import instant
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.testing.kit import drain


@pytest.fixture
async def server() -> AsyncIterator[WorkflowServer]:
    async with workflow_server() as made:
        yield made


async def refused(client: httpx.AsyncClient, body: Any, status: int, code: str) -> dict[str, Any]:
    """The error of a request, in the envelope of errors."""
    response = await client.post(EXECUTE, json=body)
    assert (response.status_code, response.headers["content-type"]) == (status, "application/json"), response.text
    document = response.json()
    assert set(document) == {"success", "error"}
    assert document["success"] is False
    error: dict[str, Any] = document["error"]
    assert set(error) <= {"code", "message", "errors", "trace_id"}
    assert error["code"] == code, error
    assert error["message"]
    return error


async def test_a_run_from_the_request_to_its_output(server: WorkflowServer) -> None:
    async with server.api.client("operator") as client:
        job_id = await execute(client, "scan", {"platform": "ably"}, priority=7)
        waiting = await run_of(client, job_id)
        assert (waiting["state"], waiting["platform"], waiting["priority"]) == ("PENDING", "ably", 7)
        assert (waiting["workflow_id"], waiting["version"], waiting["output"]) == ("scan", 3, None)
        assert waiting["params"] == {"platform": "ably", "urls": ["a", "b"]}
        assert [(step["id"], step["status"]) for step in waiting["steps"]] == [
            (name, "pending") for name in ("scan", "store", "never", "alert")
        ]
        await drain(server.yard)
        done = await run_of(client, job_id)
        job = (await client.get(f"/v1/jobs/{job_id}")).json()
    assert (done["state"], done["output"]) == ("COMPLETED", {"stored": 2})
    assert server.stored == [["page a", "page b"]]
    assert {step["id"]: step["status"] for step in done["steps"]} == {
        "scan": "completed", "store": "completed", "never": "skipped", "alert": "skipped"
    }  # fmt: skip
    scan, store, never, alert = done["steps"]
    assert scan["items"] == {"total": 2, "ended": 2, "failed": 0}
    assert (never["reason"], alert["reason"]) == ("The condition is false: false", "No step failed.")
    times = [done["created_at"], done["started_at"], scan["finished_at"], store["finished_at"], done["finished_at"]]
    assert times == sorted(times)
    assert 0 <= store["elapsed_seconds"] <= done["elapsed_seconds"] + 0.01
    assert (done["progress"]["percent"], done["progress"]["message"]) == (100, "3 of 3 steps")
    assert (job["timeout_seconds"], job["max_attempts"], job["kind"]) == (3600, 3, "jobyard.workflow")


async def test_the_platform_of_a_run(server: WorkflowServer) -> None:
    async with server.api.client("operator") as client:
        expected = {
            "kurly": await execute(client, "scan", {"platform": "kurly"}),
            "ably": await execute(client, "scan", {"platform": "kurly"}, platform="ably"),
            "extract": await execute(client, "single_product"),
            "default": await execute(client, "report"),
        }
        for platform, job_id in expected.items():
            assert (await run_of(client, job_id))["platform"] == platform
        assert (await run_of(client, await execute(client, "report", platform="multi_platform")))["platform"] == (
            "extract"
        )
        queued = (await client.get("/api/v2/jobs/running")).json()["data"]["queued"]
    assert queued == {"ably": 1, "kurly": 1, "extract": 2, "default": 1}


async def test_a_platform_runs_one_workflow_at_a_time_by_priority_and_age() -> None:
    started: list[str] = []
    release = asyncio.Event()
    async with workflow_server({"id": "slow", "platform": "ably", "steps": [{"id": "a", "kind": "slow"}]}) as own:

        @own.yard.job(name="slow")
        async def slow_step(ctx: Context) -> None:
            started.append(ctx.job_id)
            await release.wait()

        async with own.api.client("operator") as client, own.yard.worker(concurrency=4):
            first = await execute(client, "slow")
            await eventually(lambda: started)
            late, urgent = await execute(client, "slow"), await execute(client, "slow", priority=5)
            shown = (await client.get("/api/v2/jobs/running")).json()["data"]
            [running] = shown["running"]
            assert (running["platform"], running["workflow_id"], running["job_id"]) == ("ably", "slow", first)
            assert shown["summary"] == {"running_count": 1, "queued_count": 2}
            release.set()
            for job_id in (late, urgent):
                await client.get(f"/v1/jobs/{job_id}", params={"wait": 10})
    assert started == [first, urgent, late]


async def test_what_is_refused_and_nothing_is_stored(server: WorkflowServer) -> None:
    async with server.api.client("operator") as client:
        error = await refused(client, {"workflow_id": "scam"}, 404, "unknown_workflow")
        assert 'Did you mean "scan"?' in error["message"]
        error = await refused(client, {"workflow_id": "scan"}, 422, "bad_option")
        assert error["errors"] == [{"pointer": "/params", "detail": 'params needs the key "platform".'}]
        params = {"platform": 5, "urls": ["a", 7], "limit": 1}
        error = await refused(client, {"workflow_id": "scan", "params": params}, 422, "bad_option")
        assert [each["pointer"] for each in error["errors"]] == ["/params/platform", "/params/urls/1", "/params/limit"]
        error = await refused(client, {"workflow_id": "report", "platform": "albly"}, 422, "bad_option")
        assert error["errors"][0]["pointer"] == "/platform"
        assert 'Did you mean "ably"?' in error["message"]
        params = {"platform": "elsewhere"}
        error = await refused(client, {"workflow_id": "scan", "params": params}, 422, "bad_option")
        assert error["errors"][0]["pointer"] == "/params"
        await refused(client, {"workflow": "scan"}, 422, "bad_input")
        await refused(client, {"workflow_id": "scan", "params": [1]}, 422, "bad_input")
        await refused(client, {"workflow_id": "report", "priority": "high"}, 422, "bad_input")
        too_large = {"platform": "ably", "urls": ["x" * 1_100_000]}
        await refused(client, {"workflow_id": "scan", "params": too_large}, 413, "payload_too_large")
        assert (await client.get("/v1/jobs")).json()["items"] == []
    async with server.api.client("viewer") as client:
        await refused(client, {"workflow_id": "report"}, 403, "not_allowed")
    async with server.api.client() as client:
        await refused(client, {"workflow_id": "report"}, 401, "no_token")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.recursive(
        st.just("secretword") | st.integers(7_654_321, 7_654_399) | st.none() | st.booleans(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["platform", "urls"]), inner),
        max_leaves=8,
    ),
    st.sampled_from([None, "ably", "nowhere"]),
)
async def test_no_value_of_a_param_is_part_of_an_error(server: WorkflowServer, params: Any, platform: Any) -> None:
    async with server.api.client("operator") as client:
        body = {"workflow_id": "scan", "params": params, "platform": platform}
        response = await client.post(EXECUTE, json=body)
    if response.status_code == 202:
        return
    assert response.json()["success"] is False
    assert "secretword" not in response.text
    assert "76543" not in response.text


async def test_a_failed_run_names_the_step_and_outputs_stay_out_of_errors(server: WorkflowServer) -> None:
    async with server.api.client("operator") as client:
        job_id = await execute(client, "scan", {"platform": "ably", "urls": ["ok", "bad"]})
        await drain(server.yard, with_delayed=False)
        failed = await run_of(client, job_id)
    assert (failed["state"], failed["output"]) == ("FAILED", None)
    steps = {step["id"]: step for step in failed["steps"]}
    assert steps["scan"]["status"] == "failed"
    assert steps["scan"]["items"] == {"total": 2, "ended": 2, "failed": 1}
    assert steps["store"]["reason"] == "Step scan failed."
    assert steps["alert"]["status"] == "completed"
    assert server.stored == [["scan"]]
    assert "page ok" not in failed["reason"] + "".join(step["reason"] for step in failed["steps"])


async def test_cancel(server: WorkflowServer) -> None:
    async with server.api.client("submitter") as client:
        job_id = await execute(client, "report")
        response = await client.post(f"/api/v2/workflows/{job_id}/cancel", json={"reason": "enough"})
        assert response.json()["success"] is True
        assert (response.json()["data"]["state"], response.json()["data"]["reason"]) == ("CANCELLED", "enough")
        assert response.json()["data"]["steps"][0]["status"] == "skipped"
        again = await client.post(f"/api/v2/workflows/{job_id}/cancel", json={})
        assert (again.status_code, again.json()["error"]["code"]) == (409, "not_possible")
    entries = [entry.action for entry in [each async for each in server.api.dependencies.operations.audit_log()]]
    assert entries == ["job.cancel"]


async def test_other_jobs_and_jobs_of_others_are_not_found(server: WorkflowServer) -> None:
    async with server.api.client("operator") as client, server.api.client("submitter") as other:
        plain = (await client.post("/v1/jobs", json={"kind": "a"})).json()["id"]
        own = await execute(client, "report")
        for each, job_id in ((client, plain), (client, "absent"), (other, own)):
            for response in (
                await each.get(f"/api/v2/workflows/{job_id}"),
                await each.post(f"/api/v2/workflows/{job_id}/cancel", json={}),
            ):
                assert (response.status_code, response.json()["error"]["code"]) == (404, "job_not_found")
                assert response.json()["success"] is False


async def test_a_token_runs_workflows_within_its_scope(server: WorkflowServer) -> None:
    async with server.api.client("submitter", queues=("ably",)) as client:
        await execute(client, "scan", {"platform": "ably"})
        await refused(client, {"workflow_id": "scan", "params": {"platform": "kurly"}}, 403, "out_of_scope")
    async with server.api.client("submitter", kinds=("mail",)) as client:
        await refused(client, {"workflow_id": "report"}, 403, "out_of_scope")
        assert (await client.get("/api/v2/workflows")).json()["data"]["workflows"] == []
    async with server.api.client("submitter", kinds=("jobyard.workflow",)) as client:
        await execute(client, "report")


async def test_a_repeated_request_starts_one_run(server: WorkflowServer) -> None:
    async with server.api.client("submitter") as client:
        key = {"Idempotency-Key": "one"}
        first, second = [await client.post(EXECUTE, json={"workflow_id": "report"}, headers=key) for _ in range(2)]
        assert first.json() == second.json()
        assert second.headers["idempotency-replayed"] == "true"
        other = await client.post(EXECUTE, json={"workflow_id": "single_product"}, headers=key)
        assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reused")
        assert len((await client.get("/v1/jobs")).json()["items"]) == 1


async def test_the_list_of_workflows(server: WorkflowServer) -> None:
    async with server.api.client("viewer") as client:
        document = (await client.get("/api/v2/workflows")).json()
    assert document["success"] is True
    found = document["data"]["workflows"]
    assert [each["id"] for each in found] == ["report", "scan", "single_product"]
    scan = found[1]
    assert (scan["version"], scan["platform"], scan["timeout_seconds"]) == (3, "${params.platform}", 3600)
    assert scan["params"]["required"] == ["platform"]
    assert [(step["id"], step["needs"], step["has_items"]) for step in scan["steps"][:2]] == [
        ("scan", [], True), ("store", ["scan"], False)
    ]  # fmt: skip


async def test_an_edited_file_does_not_change_a_run(server: WorkflowServer) -> None:
    async with server.api.client("operator") as client:
        job_id = await execute(client, "report")
        server.api.dependencies.workflows = type(server.api.dependencies.workflows)()
        await drain(server.yard)
        assert (await run_of(client, job_id))["state"] == "COMPLETED"


async def test_the_history_of_a_workflow_is_paged_and_hides_results(server: WorkflowServer) -> None:
    @server.yard.workflow
    async def order(ctx: WorkflowContext, secret: str) -> None:
        for number in range(5):
            await ctx.step("{} {}".format, secret, number, name=f"step {number}")
        await ctx.wait_for("approved", timeout=60)

    handle = await order.enqueue("hunter2")
    await drain(server.yard)
    path = f"/v1/jobs/{handle.id}/history"
    async with server.api.client("viewer") as client:
        items: list[dict[str, Any]] = []
        token = None
        while True:
            query = {"page_size": "2"} | ({} if token is None else {"page_token": token})
            page = (await client.get(path, params=query)).json()
            items += page["items"]
            token = page.get("next_page_token")
            if token is None:
                break
        assert "hunter2" not in str(items)
        assert [(each["kind"], each["name"], each["status"]) for each in items] == [
            *(("step", f"step {number}", "completed") for number in range(5)),
            ("wait_for", "approved", "started"),
        ]
        assert instant(items[0]["started_at"]) <= instant(items[0]["recorded_at"]) + 1000
        whole = (await client.get(path, params={"results": "true"})).json()
        assert whole["items"][4]["result"] == "hunter2 4"
        explained = (await client.get(f"/v1/jobs/{handle.id}/explain")).json()
        assert explained["sentence"].startswith("Waits for signal approved since ")
        assert (await client.get(path, params={"page_token": "x"})).status_code == 422
        assert (await client.get("/v1/jobs/absent/history")).status_code == 404


async def test_a_signal_with_an_id_is_received_once(server: WorkflowServer) -> None:
    @server.yard.workflow
    async def wait_twice(ctx: WorkflowContext) -> list[Any]:
        return [await ctx.wait_for("go"), await ctx.wait_for("go")]

    handle = await wait_twice.enqueue()
    await drain(server.yard)
    async with server.api.client("operator") as client:
        for data, signal_id in ((1, "x"), (2, "x"), (3, "y")):
            body = {"name": "go", "data": data, "signal_id": signal_id}
            assert (await client.post(f"/v1/jobs/{handle.id}/signal", json=body)).status_code == 200
    await drain(server.yard)
    assert await handle.result(timeout=0) == [1, 3]


async def test_explain_names_the_kind_of_a_step_that_no_worker_knows(server: WorkflowServer) -> None:
    async with server.api.client("operator") as client:
        job_id = await execute(client, "scan", {"platform": "ably"})
        kinds = ("jobyard.workflow", "scan_url")
        worker = WorkerInfo(id="w", host="h", pid=1, queues=(), concurrency=1, kinds=kinds)
        await server.api.store.heartbeat(worker, 60)
        explained = (await client.get(f"/v1/jobs/{job_id}/explain")).json()
    assert "has a handler for kind store" in explained["sentence"]


async def test_explain_counts_child_jobs_and_names_them_only_to_those_who_see_them(server: WorkflowServer) -> None:
    @server.yard.job(queue="hidden")
    async def child(number: int) -> None: ...

    @server.yard.workflow
    async def parent(ctx: WorkflowContext) -> None:
        await ctx.map(child.call, range(3))

    handle = await parent.enqueue()
    await drain(server.yard, queues=["default"])
    async with server.api.client("viewer") as all_queues, server.api.client("viewer", queues=("default",)) as one:
        seen = (await all_queues.get(f"/v1/jobs/{handle.id}/explain")).json()
        part = (await one.get(f"/v1/jobs/{handle.id}/explain")).json()
    [cause] = [cause for cause in seen["causes"] if cause["code"] == "waits_for_children"]
    assert cause["sentence"] == f"waits for 3 child jobs, oldest {cause['data']['oldest']} (PENDING)"
    assert part["sentence"].startswith("Waits for 3 child jobs")
    assert cause["data"]["oldest"] not in msgspec.json.encode(part).decode()


async def test_a_wrong_type_is_said_in_words(server: WorkflowServer) -> None:
    async with server.api.client("operator") as client:
        error = await refused(client, {"workflow_id": "report", "priority": "high"}, 422, "bad_input")
    assert error["message"] == "Invalid body: Expected an integer or null, got a string."
