"""Programs over HTTP: submit, wait, read, reject; nothing of them is shown to other tokens."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.server.program_support import body, programs, running
from tests.server.support import ApiServer, announce_languages, api_server

from jobyard.domain.job import QueueSettings
from jobyard.operations.sandboxes import SandboxInfo, known_sandboxes, publish_sandbox
from jobyard.ports.admin_store import Filter
from jobyard.sandbox.protocol import Language, Tier


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with programs() as api:
        yield api


async def test_program_is_pending_until_a_worker_runs_it(api: ApiServer, tmp_path: Path) -> None:
    async with api.client("submitter") as client:
        response = await client.post("/execute", json=body("out hello", "exit 2"))
        job_id = response.json()["job_id"]
        assert (response.status_code, response.json()) == (202, {"job_id": job_id, "status": "PENDING"})
        where = response.headers["location"]
        assert (await client.get(where)).json() == {"job_id": job_id, "status": "PENDING"}
        async with running(api, tmp_path):
            done = (await client.get(where, params={"wait": 5})).json()
    assert list(done) == ["job_id", "status", "result"]
    assert (done["job_id"], done["status"]) == (job_id, "COMPLETED")
    result = done["result"]
    assert (result["stdout"], result["stderr"], result["exit_code"]) == ("hello\n", "", 2)
    assert result["execution_time_ms"] >= 0


async def test_wait_returns_the_finished_run(api: ApiServer, tmp_path: Path) -> None:
    async with api.client("submitter") as client, running(api, tmp_path):
        response = await client.post("/execute", params={"wait": 5}, json=body("cat", input="é"))
        assert (response.status_code, response.json()["result"]["stdout"]) == (200, "é")
        slow = await client.post("/execute", params={"wait": 0.1}, json=body("sleep 1"))
        assert (slow.status_code, slow.json()["status"]) == (202, "RUNNING")


async def test_binary_input_and_output(api: ApiServer, tmp_path: Path) -> None:
    files = [{"name": "d/a.bin", "content_base64": "/wA="}, {"name": "b.txt", "content": "é"}]
    async with api.client("submitter") as client, running(api, tmp_path):
        given = body("cat", "files", "args", "keep", input_base64="/w==", files=files, args=["x"], collect=["out.txt"])
        response = await client.post("/execute", params={"wait": 5}, json=given)
    result = response.json()["result"]
    assert result["stdout_base64"] == "/2QvYS5iaW49/wBiLnR4dD3DqXg="
    assert result["files"] == [{"name": "out.txt", "size": 4, "content": "kept"}]


async def test_batch_is_one_job_with_results_in_order(api: ApiServer, tmp_path: Path) -> None:
    async with api.client("submitter") as client, running(api, tmp_path):
        response = await client.post(
            "/execute/batch", params={"wait": 5}, json=body("cat", inputs=[str(n) for n in range(10)])
        )
    assert [run["stdout"] for run in response.json()["result"]["results"]] == [str(n) for n in range(10)]


async def test_platform_faults_fail_with_a_reason(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobyard.executors.sandbox.executor.RETRY_SOON_SECONDS", 0.01)
    async with api.client("submitter") as client, running(api, tmp_path):
        response = await client.post("/execute", params={"wait": 5}, json=body("refuse SPAWN_FAILED"))
    found = response.json()
    assert found == {"job_id": found["job_id"], "status": "FAILED", "reason": found["reason"]}
    assert found["reason"].startswith("SPAWN_FAILED: ")


async def test_cancelled_program_fails_with_the_reason(api: ApiServer) -> None:
    async with api.client("submitter") as client:
        job_id = (await client.post("/execute", json=body())).json()["job_id"]
        assert (await client.post(f"/v1/jobs/{job_id}/cancel", json={"reason": "enough"})).status_code == 200
        found = (await client.get(f"/jobs/{job_id}")).json()
    assert found == {"job_id": job_id, "status": "FAILED", "reason": "CANCELLED: enough"}


# Rejected requests


LONG = "x" * ((256 << 10) + 1)
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"language": "cobol"}, "/language"),
    ({"language": ""}, "/language"),
    ({"source_code": ""}, "/source_code"),
    ({"source_code": LONG}, "/source_code"),
    ({"source_code": 1}, "/source_code"),
    ({"input": 1}, "/input"),
    ({"input": "x" * ((1 << 20) + 1)}, "/input"),
    ({"input": "a", "input_base64": "YQ=="}, "/input_base64"),
    ({"input_base64": "%"}, "/input_base64"),
    ({"limits": {"time_seconds": 0}}, "/limits/time_seconds"),
    ({"limits": {"time_seconds": -1}}, "/limits/time_seconds"),
    ({"limits": {"time_seconds": 31}}, "/limits/time_seconds"),
    ({"limits": {"time_seconds": 1e308}}, "/limits/time_seconds"),
    ({"limits": {"time_seconds": "3"}}, "/limits/time_seconds"),
    ({"limits": {"time_seconds": True}}, "/limits/time_seconds"),
    ({"limits": {"time_seconds": None}}, "/limits/time_seconds"),
    ({"limits": {"cpu_seconds": 0}}, "/limits/cpu_seconds"),
    ({"limits": {"cpu_seconds": 31}}, "/limits/cpu_seconds"),
    ({"limits": {"memory_mb": 0}}, "/limits/memory_mb"),
    ({"limits": {"memory_mb": 1.5}}, "/limits/memory_mb"),
    ({"limits": {"memory_mb": 10**9}}, "/limits/memory_mb"),
    ({"limits": {"memory_mb": 10**30}}, "/limits/memory_mb"),
    ({"limits": {"processes": 0}}, "/limits/processes"),
    ({"limits": {"output_bytes": 1 << 30}}, "/limits/output_bytes"),
    ({"limits": {"time_secs": 1}}, "/limits/time_secs"),
    ({"files": [{"name": "../x"}]}, "/files/0/name"),
    ({"files": [{"name": "/x"}]}, "/files/0/name"),
    ({"files": [{"name": "a\0"}]}, "/files/0/name"),
    ({"files": [{"name": ""}]}, "/files/0/name"),
    ({"files": [{"name": "x" * 256}]}, "/files/0/name"),
    ({"files": [{"name": "a"}, {"name": "a"}]}, "/files/1/name"),
    ({"files": [{"name": "a", "content": "x", "content_base64": "YQ=="}]}, "/files/0/content_base64"),
    ({"files": [{"name": "a", "content": LONG * 5}]}, "/files"),
    ({"collect": ["../x"]}, "/collect/0"),
    ({"args": ["ok", "a\0b"]}, "/args/1"),
    ({"args": "a"}, "/args"),
    ({"stdin": "x"}, "/stdin"),
]


@pytest.mark.parametrize(("given", "pointer"), REFUSED, ids=[str(case)[:60] for case in REFUSED])
async def test_bad_requests_name_the_field_and_queue_nothing(
    api: ApiServer, given: dict[str, Any], pointer: str
) -> None:
    async with api.client("submitter") as client:
        response = await client.post("/execute", json=body(**given) | given)
    found = response.json()
    assert (response.status_code, found["code"]) == (422, "bad_input"), found
    assert [error["pointer"] for error in found["errors"]] == [pointer]
    assert (await api.store.find(Filter(), 10)).jobs == ()


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_invalid_numbers_name_the_field(api: ApiServer, number: str) -> None:
    text = json.dumps(body(limits={"time_seconds": 0.125})).replace("0.125", number)
    async with api.client("submitter") as client:
        response = await client.post("/execute", content=text, headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/limits/time_seconds")
    assert (await api.store.find(Filter(), 10)).jobs == ()


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        (b'{"language": "python", "source_code": "\\ud800"}', "/source_code"),
        (b'{"language": "python", "source_code": "x", "input": "\xff"}', "/input"),
        (b'{"language": "python", "source_code": "x", "files": [{"name": "\\udc00"}]}', "/files/0/name"),
    ],
)
async def test_invalid_text_names_the_field(api: ApiServer, text: bytes, pointer: str) -> None:
    async with api.client("submitter") as client:
        response = await client.post("/execute", content=text, headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, pointer)


@pytest.mark.parametrize("inputs", [[], ["x"] * 101, [1], "x", ["x" * ((1 << 20) + 1)]])
async def test_batch_inputs_are_bounded(api: ApiServer, inputs: Any) -> None:
    async with api.client("submitter") as client:
        response = await client.post("/execute/batch", json=body(inputs=inputs))
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"].startswith("/inputs")
    assert (await api.store.find(Filter(), 10)).jobs == ()


@pytest.mark.parametrize("wait", ["-1", "61", "nan", "x"])
async def test_wait_is_bounded(api: ApiServer, wait: str) -> None:
    async with api.client("submitter") as client:
        response = await client.post("/execute", params={"wait": wait}, json=body())
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "wait")


async def test_without_a_sandbox_programs_wait_for_one(tmp_path: Path) -> None:
    async with api_server() as api, api.client("submitter") as client:
        response = await client.post("/execute", json=body("out hello"))
        assert (response.status_code, response.json()["status"]) == (202, "PENDING")
        job_id = response.json()["job_id"]
        causes = await causes_of(client, job_id)
        assert causes["no_sandbox"]["data"] == {"language": "python"}
        await publish_sandbox(api.store, SandboxInfo(worker="w", reason="There are no namespaces here."))
        assert "no namespaces" in (await causes_of(client, job_id))["no_sandbox"]["sentence"]
        await announce_languages(api.store)
        assert "no_sandbox" not in await causes_of(client, job_id)
        async with running(api, tmp_path):
            response = await client.get(f"/jobs/{job_id}", params={"wait": 10})
        assert response.json()["result"]["stdout"] == "hello\n"


async def causes_of(client: Any, job_id: str) -> dict[str, Any]:
    explanation = (await client.get(f"/v1/jobs/{job_id}/explain")).json()
    return {cause["code"]: cause for cause in explanation["causes"]}


async def test_explain_names_a_language_that_no_sandbox_has(api: ApiServer) -> None:
    async with api.client("submitter") as client:
        job_id = (await client.post("/execute", json=body())).json()["job_id"]
        assert "no_sandbox" not in await causes_of(client, job_id)
        for info in await known_sandboxes(api.store):
            languages = tuple(language for language in info.languages if language.name != "python")
            await publish_sandbox(api.store, msgspec.structs.replace(info, languages=languages))
        assert (await causes_of(client, job_id))["no_sandbox"]["sentence"] == "no live worker runs python"


async def test_without_a_sandbox_programs_are_rejected_on_request() -> None:
    async with api_server() as api, api.client("submitter") as client:
        api.dependencies.rejects_without_sandbox = True
        response = await client.post("/execute", json=body())
        assert (response.status_code, response.json()["code"]) == (503, "sandbox_unavailable")
        await publish_sandbox(api.store, SandboxInfo(worker="w", reason="There are no namespaces here."))
        response = await client.post("/execute", json=body())
        reason = response.json()["detail"]
        assert "There are no namespaces here." in reason
        assert (await client.get("/languages")).json() == {"items": [], "reason": reason}
        assert (await api.store.find(Filter(), 10)).jobs == ()
        await announce_languages(api.store)
        assert (await client.post("/execute", json=body())).status_code == 202  # known as soon as it is announced


async def test_tier_c_rejects_files(api: ApiServer) -> None:
    await publish_sandbox(
        api.store, SandboxInfo(worker="c", tier=Tier.C, languages=(Language(name="lua", version="5"),))
    )
    async with api.client("submitter") as client:
        for given, pointer in (({"files": [{"name": "a"}]}, "/files"), ({"collect": ["a"]}, "/collect")):
            response = await client.post("/execute", json=body(**given) | {"language": "lua"})
            assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, pointer)
        assert (await client.post("/execute", json=body() | {"language": "lua"})).status_code == 202


async def test_languages_of_live_workers(api: ApiServer) -> None:
    async with api.client("viewer") as client:
        items = (await client.get("/languages")).json()["items"]
    assert [item["name"] for item in items] == ["c", "python"]
    facts = {"name": "c", "version": "1.0", "compiled": False, "tier": "A"}
    limits = {"max_compile_seconds": None, "max_compile_memory_mb": None}
    assert items[0] == facts | limits | {"extensions": [], "compile_options": [], "example": ""}


# Scopes


async def test_code_input_and_limits_are_never_shown(api: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with api.client("admin") as client:
        secret = body("SECRET", input="SECRET", args=["SECRET"], files=[{"name": "SECRET"}])
        job_id = (await client.post("/execute", json=secret)).json()["job_id"]
        shown = [await client.get(path) for path in ("/v1/jobs", f"/v1/jobs/{job_id}", f"/jobs/{job_id}", "/v1/audit")]
    job = await api.store.get(job_id)
    assert job is not None
    assert msgspec.json.decode(job.payload) == {"language": "python"}
    assert not any("SECRET" in response.text for response in shown)
    assert "SECRET" not in caplog.text


async def test_submitter_sees_only_its_own_programs(api: ApiServer) -> None:
    async with api.client("submitter") as mine, api.client("submitter") as others, api.client("viewer") as all_:
        job_id = (await mine.post("/execute", json=body())).json()["job_id"]
        assert [(await who.get(f"/jobs/{job_id}")).status_code for who in (mine, others, all_)] == [200, 404, 200]
        mail = (await mine.post("/v1/jobs", json={"kind": "mail"})).json()["id"]
        assert (await mine.get(f"/jobs/{mail}")).status_code == 404
        assert (await mine.get(f"/jobs/{mail}/output")).status_code == 404
        assert (await mine.get("/jobs/none")).status_code == 404


async def test_each_client_has_its_own_group(api: ApiServer) -> None:
    async with api.client("submitter") as one, api.client("submitter") as two:
        for client in (one, two):
            await client.post("/execute", json=body())
    jobs = (await api.store.find(Filter(), 10)).jobs
    assert {job.queue for job in jobs} == {"code"}
    assert len({job.group for job in jobs}) == 2


async def test_restricted_token_uses_its_own_group(api: ApiServer) -> None:
    async with api.client("submitter", queues=("mail",)) as client:
        assert (await client.post("/execute", json=body())).status_code == 403
    async with api.client("submitter", groups=("team-a",)) as client:
        assert (await client.post("/execute", json=body())).status_code == 202
    [job] = (await api.store.find(Filter(), 10)).jobs
    assert job.group == "team-a"


async def test_full_queue_is_too_many_requests(api: ApiServer) -> None:
    await api.store.configure("code", QueueSettings(max_waiting_per_group=1))
    async with api.client("submitter") as client:
        assert (await client.post("/execute", json=body())).status_code == 202
        response = await client.post("/execute", json=body())
    assert (response.status_code, response.json()["code"]) == (429, "queue_full")


async def test_idempotency_key_creates_one_job(api: ApiServer, tmp_path: Path) -> None:
    async with api.client("submitter") as client, running(api, tmp_path) as fake:
        headers = {"Idempotency-Key": "k"}
        first = await client.post("/execute", params={"wait": 5}, json=body("out x"), headers=headers)
        again = await client.post("/execute", json=body("out x"), headers=headers)
        assert first.json() == again.json()
        assert again.headers["idempotency-replayed"] == "true"
        other = await client.post("/execute", json=body("out y"), headers=headers)
        assert (other.status_code, len(fake.runs)) == (422, 1)
