"""`GET /api/v2/jobs/running`: its envelope, what a token sees of it, and errors in the same envelope."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2 as httpx
import pytest
from tests.conformance.support import claim_one, new
from tests.server.support import ApiServer, api_server

from jobyard.domain.instant import instant
from jobyard.domain.job import QueueSettings
from jobyard.errors import StoreUnavailable
from jobyard.server.routes import running

PATH = "/api/v2/jobs/running"


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with api_server() as made:
        yield made


async def data(client: httpx.AsyncClient) -> dict[str, Any]:
    response = await client.get(PATH)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    body: dict[str, Any] = response.json()
    assert set(body) == {"success", "data"}
    assert body["success"] is True
    assert set(body["data"]) == {"running", "queued", "summary"}
    found: dict[str, Any] = body["data"]
    return found


async def test_what_runs_and_what_waits(api: ApiServer) -> None:
    for platform in ("ably", "kurly", "zigzag"):
        await api.store.configure(platform, QueueSettings(max_running=1))
    jobs = [
        new(queue="kurly", kind="scan", payload=b'{"workflow_id":"kurly-scan-v2"}'),
        new(queue="ably", kind="scan", payload=b'{"workflow_id":7}'),
        new(queue="ably"),
        new(queue="ably", delay_seconds=60),
    ]
    await api.store.insert(jobs)
    await claim_one(api.store, "kurly")
    await claim_one(api.store, "ably")
    async with api.client("viewer") as client:
        found = await data(client)
    first, second = found["running"]
    assert set(first) == {"platform", "job_id", "workflow_id", "started_at", "elapsed_seconds"}
    assert (first["platform"], first["job_id"], first["workflow_id"]) == ("kurly", jobs[0].id, "kurly-scan-v2")
    assert (second["platform"], second["job_id"], second["workflow_id"]) == ("ably", jobs[1].id, "scan")
    now = await api.store.now()
    assert first["elapsed_seconds"] >= second["elapsed_seconds"] >= 0
    assert instant(first["started_at"]) <= instant(second["started_at"]) <= now
    assert found["queued"] == {"ably": 2, "kurly": 0, "zigzag": 0}
    assert found["summary"] == {"running_count": 2, "queued_count": 2}


async def test_nothing_at_all(api: ApiServer) -> None:
    async with api.client("viewer") as client:
        assert await data(client) == {
            "running": [],
            "queued": {},
            "summary": {"running_count": 0, "queued_count": 0},
        }


async def test_a_token_sees_what_is_in_its_scope(api: ApiServer) -> None:
    await api.store.insert([new(queue=queue, group=group) for queue in ("ably", "kurly") for group in ("a", "b")])
    await api.store.insert([new(queue=queue, group="a") for queue in ("ably", "kurly")])
    await claim_one(api.store, "ably")
    await claim_one(api.store, "kurly")
    async with api.client("viewer", queues=("ably",)) as client:
        found = await data(client)
    assert [job["platform"] for job in found["running"]] == ["ably"]
    assert found["queued"] == {"ably": 2}
    assert found["summary"] == {"running_count": 1, "queued_count": 2}
    async with api.client("viewer", groups=("b",)) as client:
        found = await data(client)
    assert found == {
        "running": [],
        "queued": {"ably": 1, "kurly": 1},
        "summary": {"running_count": 0, "queued_count": 2},
    }


async def test_a_long_list_is_cut_and_counted(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MAX_LISTED", 3)
    await api.store.insert([new(queue="ably") for _ in range(5)])
    for _ in range(5):
        await claim_one(api.store, "ably")
    async with api.client("viewer") as client:
        found = await data(client)
    assert len(found["running"]) == 3
    assert found["summary"]["running_count"] == 5


def refused(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    body: dict[str, Any] = response.json()
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert set(body) == {"success", "error"}
    assert body["success"] is False
    assert body["error"]["code"] == code
    assert body["error"]["message"]
    error: dict[str, Any] = body["error"]
    return error


async def test_errors_have_the_envelope(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with api.client() as client:
        response = await client.get(PATH)
        refused(response, 401, "no_token")
        assert response.headers["www-authenticate"] == "Bearer"
    async with api.client("submitter") as client:
        refused(await client.get(PATH), 403, "not_allowed")
    async with api.client("viewer") as client:
        error = refused(await client.get(PATH, params={"platfrom": "ably"}), 422, "bad_input")
        assert [each["pointer"] for each in error["errors"]] == ["platfrom"]
        response = await client.post(PATH)
        refused(response, 405, "no_such_method")
        assert response.headers["allow"] == "GET, HEAD"
        refused(await client.get("/api/v2/nothing"), 404, "not_found")

        async def fails() -> None:
            raise StoreUnavailable("the store is away")

        monkeypatch.setattr(api.store, "queues", fails)
        response = await client.get(PATH)
        refused(response, 503, StoreUnavailable.code)
        assert response.headers["retry-after"] == "1"


async def test_other_paths_keep_problem_documents(api: ApiServer) -> None:
    async with api.client() as client:
        response = await client.get("/v1/queues")
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["status"] == 401
