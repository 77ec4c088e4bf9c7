"""A page token belongs to one list; other lists reject it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2 as httpx
import pytest
from tests.server.support import ApiServer, api_server, submit_job

GROUPS_OF_A, GROUPS_OF_B = "/v1/queues/a/groups", "/v1/queues/b/groups"
LISTS = ("/v1/jobs", "/v1/dead-letters", "/v1/queues", GROUPS_OF_A, GROUPS_OF_B, "/v1/schedules", "/v1/audit",
         "/v1/schedules/s0/history")  # fmt: skip
WITH_PAGES = ("/v1/jobs", "/v1/queues", GROUPS_OF_A, GROUPS_OF_B, "/v1/schedules", "/v1/audit")
BULK = {"action": "run_now", "limit": 1}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with api_server() as api, api.client("admin") as made:
        await fill(api, made)
        yield made


async def fill(api: ApiServer, client: httpx.AsyncClient) -> None:
    for queue in ("a", "b"):
        for group in ("g", "h"):
            await submit_job(client, queue=queue, group=group)
    for number in range(2):
        schedule = {"name": f"s{number}", "kind": "mail", "expression": "0 3 * * *"}
        assert (await client.post("/v1/schedules", json=schedule)).status_code == 201


async def page_token(client: httpx.AsyncClient, path: str) -> str:
    response = await client.get(path, params={"page_size": 1})
    return str(response.json()["next_page_token"])


async def bulk(client: httpx.AsyncClient, **given: Any) -> httpx.Response:
    return await client.post("/v1/jobs/actions", json={**BULK, **given})


@pytest.mark.parametrize("path", WITH_PAGES)
async def test_lists_reject_the_page_tokens_of_other_lists(client: httpx.AsyncClient, path: str) -> None:
    given: dict[str, str | int] = {"page_size": 1, "page_token": await page_token(client, path)}
    assert (await client.get(path, params=given)).status_code == 200
    for other in LISTS:
        if other != path:
            response = await client.get(other, params=given)
            assert (response.status_code, response.json()["code"]) == (422, "bad_page_token"), other
            assert response.json()["detail"] == "Invalid page_token for this list; omit it to start over."
            assert [error["pointer"] for error in response.json()["errors"]] == ["page_token"]


async def test_bulk_actions_reject_the_page_tokens_of_lists_and_of_each_other(client: httpx.AsyncClient) -> None:
    ids = [job["id"] for job in (await client.get("/v1/jobs")).json()["items"]]
    by_ids, by_filter = {"ids": ids}, {"filter": {"state": ["PENDING"]}}
    listed = await page_token(client, "/v1/jobs")
    of_ids, of_filter = [(await bulk(client, **each)).json()["next_page_token"] for each in (by_ids, by_filter)]
    for where, own in ((by_ids, of_ids), (by_filter, of_filter)):
        assert (await bulk(client, **where, page_token=own)).status_code == 200
        for other in {listed, of_ids, of_filter} - {own}:
            assert (await bulk(client, **where, page_token=other)).json()["code"] == "bad_page_token"
    for other in (of_ids, of_filter):
        assert (await client.get("/v1/jobs", params={"page_token": other})).status_code == 422
