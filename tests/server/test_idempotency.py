"""Idempotency-Key: a repeated request makes nothing more and gets the same response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2 as httpx
import pytest
from tests.server.support import ApiServer, announce_languages, api_server, ids
from tests.server.workflow_support import EXECUTE

from jobyard.server.routes.table import ALL_ROUTES

KEY = {"Idempotency-Key": "order-17"}
SCHEDULE = {"name": "nightly", "expression": "0 3 * * *", "kind": "report"}
REQUESTS: dict[str, dict[str, Any]] = {
    "/v1/jobs": {"kind": "a", "payload": {"x": 1}},
    "/v1/jobs/batch": {"jobs": [{"kind": "a"}, {"kind": "b"}]},
    "/execute": {"language": "python", "source_code": "print(1)"},
    "/execute/batch": {"language": "python", "source_code": "print(1)", "inputs": ["1"]},
    "/execute/many": {"programs": [{"language": "python", "source_code": "print(1)"}]},
    "/v1/schedules": SCHEDULE,
    "/v1/schedules/nightly/run": {},
}
OTHER: dict[str, dict[str, Any]] = {
    "/v1/jobs": {"kind": "b"},
    "/v1/jobs/batch": {"jobs": [{"kind": "b"}]},
    "/execute": {"language": "python", "source_code": "print(2)"},
    "/execute/batch": {"language": "python", "source_code": "print(2)", "inputs": ["1"]},
    "/v1/schedules": SCHEDULE | {"name": "other"},
}


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with api_server() as made:
        await announce_languages(made.store)
        yield made


async def post(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> httpx.Response:
    return await client.post(path, json=body or None, headers=KEY)


@pytest.mark.parametrize("path", REQUESTS)
async def test_repetition_gets_the_same_response(api: ApiServer, path: str) -> None:
    async with api.client("admin") as client:
        if path.endswith("/run"):
            await client.post("/v1/schedules", json=SCHEDULE)
        first, second = [await post(client, path, REQUESTS[path]) for _ in range(2)]
        assert first.is_success, first.text
        assert (second.status_code, second.json()) == (first.status_code, first.json())
        assert second.headers.get("Location") == first.headers.get("Location")
        assert "Idempotency-Replayed" not in first.headers
        assert second.headers["Idempotency-Replayed"] == "true"
        assert len(await ids(client)) == {"/v1/jobs/batch": 2, "/v1/schedules": 0}.get(path, 1)
        if path in OTHER:
            other = await post(client, path, OTHER[path])
            assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


async def test_every_request_that_makes_something_takes_a_key(api: ApiServer) -> None:
    async with api.client() as client:
        document = (await client.get("/openapi.json")).json()
    made = {route.path for routes in ALL_ROUTES for route in routes.all if route.method == "POST" and route.permission}
    takes = {
        path
        for path, operations in document["paths"].items()
        if any(each["name"] == "Idempotency-Key" for each in operations.get("post", {}).get("parameters", ()))
    }
    assert takes <= made
    others = {"/v1/tokens", "/v1/schedules/{schedule}/run", "/v1/jobs/{id}/clone", "/v1/operations", EXECUTE}
    of_programs = {"/jobs/{job_id}/input", "/jobs/{job_id}/signal"}
    assert takes == {*REQUESTS, *others, *of_programs} - {"/v1/schedules/nightly/run"}


async def test_secret_is_neither_stored_nor_repeated(api: ApiServer) -> None:
    wanted = {"name": "shop", "role": "viewer"}
    async with api.client("admin") as client:
        first, second = [await post(client, "/v1/tokens", wanted) for _ in range(2)]
        assert first.status_code == 201
        assert (second.status_code, second.json()["code"]) == (409, "secret_not_repeated")
        assert sum(each["name"] == "shop" for each in (await client.get("/v1/tokens")).json()["items"]) == 1
        secret = first.json()["token"].encode()
        kept = await api.store.fetch_all("jobyard.responses")
        assert kept and not any(secret in record.data for record in kept)


async def test_failed_request_can_be_repeated(api: ApiServer) -> None:
    async with api.client("admin") as client:
        assert (await post(client, "/v1/schedules", SCHEDULE | {"expression": "no"})).status_code == 422
        assert (await post(client, "/v1/schedules", SCHEDULE)).status_code == 201


async def test_requests_at_once_make_one(api: ApiServer) -> None:
    async with api.client("admin") as client:
        answers = await asyncio.gather(*(post(client, "/v1/schedules", SCHEDULE) for _ in range(5)))
        codes = sorted(answer.status_code for answer in answers)
        assert codes[0] == 201
        assert set(codes) <= {201, 409}
        assert all(answer.json().get("code", "request_pending") == "request_pending" for answer in answers)
        assert len((await client.get("/v1/schedules")).json()["items"]) == 1
