"""Submitters see their own jobs, restricted tokens their queues and groups; the rest is not found."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2 as httpx
import pytest
from tests.conformance.support import claim_one, settle
from tests.server.support import ApiServer, api_server, ids, submit_job

from jobyard.domain.outcome import Failed

# Requests for one job: method, path suffix, body.
OF_ONE_JOB = [
    ("GET", "", None),
    ("GET", "/explain", None),
    ("POST", "/cancel", {}),
    ("POST", "/retry", None),
    ("POST", "/run-now", None),
    ("POST", "/prioritise", {"priority": 1}),
    ("POST", "/signal", {"name": "go"}),
    ("DELETE", "", None),
]
OF_ONE_QUEUE = [
    ("GET", "", None),
    ("PATCH", "", {}),
    ("POST", "/pause", None),
    ("POST", "/resume", None),
    ("POST", "/drain", None),
    ("GET", "/groups", None),
    ("PUT", "/groups/acme/limit", {"limit": 1}),
    ("DELETE", "/groups/acme/limit", None),
    ("POST", "/groups/acme/pause", None),
    ("POST", "/groups/acme/resume", None),
]


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with api_server() as made:
        yield made


async def test_submitter_sees_its_own_jobs_only(api: ApiServer) -> None:
    async with api.client("submitter") as ann, api.client("submitter") as ben, api.client("viewer") as viewer:
        hers, his = await submit_job(ann, tags=["red"]), await submit_job(ben, tags=["red"])
        assert await ids(ann) == [hers]
        assert await ids(ann, tag="red", page_size=1) == [hers]
        assert await ids(ann, tag="blue") == []
        assert set(await ids(viewer)) == {hers, his}
        [shown] = (await ann.get("/v1/jobs")).json()["items"]
        me = (await viewer.get(f"/v1/jobs/{hers}")).json()["submitted_by"]
        assert (shown["tags"], shown["submitted_by"]) == (["red"], me)
        assert me
        assert (await ann.get("/v1/jobs", params={"tag": f"by:{me}"})).status_code == 422
        assert (await ann.post(f"/v1/jobs/{hers}/cancel")).json()["state"] == "CANCELLED"


@pytest.mark.parametrize(("method", "path", "body"), OF_ONE_JOB, ids=str)
async def test_job_of_another_submitter_is_not_found(api: ApiServer, method: str, path: str, body: object) -> None:
    async with api.client("submitter") as ann, api.client("submitter") as ben, api.client("viewer") as viewer:
        his = await submit_job(ben)
        before = (await viewer.get(f"/v1/jobs/{his}")).json()
        response = await ann.request(method, f"/v1/jobs/{his}{path}", json=body)
        unknown = await ann.request(method, f"/v1/jobs/nobody{path}", json=body)
        # The role forbids some of these for any job; the others respond as if the job did not exist.
        assert response.status_code == unknown.status_code
        assert response.status_code in (403, 404)
        assert response.text.replace(his, "nobody") == unknown.text
        assert (await viewer.get(f"/v1/jobs/{his}")).json() == before


@pytest.mark.parametrize(("method", "path", "body"), OF_ONE_JOB, ids=str)
@pytest.mark.parametrize("scope", [{"queues": ["other"]}, {"groups": ["other"]}], ids=["queues", "groups"])
async def test_job_out_of_scope_is_not_found(
    api: ApiServer, scope: dict[str, Any], method: str, path: str, body: object
) -> None:
    async with api.client("admin") as admin, api.client("admin", **scope) as confined:
        job_id = await submit_job(admin, queue="mail", group="acme")
        response = await confined.request(method, f"/v1/jobs/{job_id}{path}", json=body)
        assert (response.status_code, response.json()["code"]) == (404, "job_not_found")
        assert (await admin.get(f"/v1/jobs/{job_id}")).json()["state"] == "PENDING"


async def test_list_contains_jobs_in_scope(api: ApiServer) -> None:
    async with (
        api.client("operator") as operator,
        api.client("viewer", queues=["a"]) as one,
        api.client("viewer", queues=["a", "b"], groups=["x", "y"]) as two,
    ):
        made = {
            (queue, group): await submit_job(operator, queue=queue, group=group)
            for queue in "abc"
            for group in ("x", "y", "z", None)
        }
        assert set(await ids(one)) == {made["a", group] for group in ("x", "y", "z", None)}
        assert await ids(one, queue="b") == []
        assert set(await ids(two, page_size=2)) == {made[queue, group] for queue in "ab" for group in "xy"}
        assert await ids(two, queue="a", group="x") == [made["a", "x"]]
        assert [queue["name"] for queue in (await two.get("/v1/queues")).json()["items"]] == ["a", "b"]
        groups = (await two.get("/v1/queues/a/groups")).json()["items"]
        assert [group["name"] for group in groups] == ["x", "y"]


@pytest.mark.parametrize(("method", "path", "body"), OF_ONE_QUEUE, ids=str)
async def test_queue_out_of_scope_is_not_found(api: ApiServer, method: str, path: str, body: object) -> None:
    async with api.client("admin") as admin, api.client("admin", queues=["other"]) as confined:
        await submit_job(admin, queue="mail", group="acme")
        before = (await admin.get("/v1/queues/mail")).json()
        response = await confined.request(method, f"/v1/queues/mail{path}", json=body)
        assert (response.status_code, response.json()["code"]) == (404, "queue_not_found")
        assert (await admin.get("/v1/queues/mail")).json() == before


async def test_token_with_groups_cannot_change_the_whole_queue(api: ApiServer) -> None:
    async with api.client("admin") as admin, api.client("operator", groups=["acme"]) as confined:
        await submit_job(admin, queue="mail", group="acme")
        for method, path in (("PATCH", ""), ("POST", "/pause"), ("POST", "/resume"), ("POST", "/drain")):
            response = await confined.request(method, f"/v1/queues/mail{path}", json={} if method == "PATCH" else None)
            assert response.status_code == 403
        assert (await confined.post("/v1/queues/mail/groups/acme/pause")).status_code == 204
        assert (await confined.post("/v1/queues/mail/groups/other/pause")).json()["code"] == "group_not_found"


async def test_submission_out_of_scope_is_forbidden(api: ApiServer) -> None:
    async with api.client("submitter", queues=["mail"], groups=["acme"]) as client:
        assert await submit_job(client, queue="mail", group="acme")
        for given in ({"queue": "mail"}, {"queue": "other", "group": "acme"}, {"group": "acme"}):
            response = await client.post("/v1/jobs", json={"kind": "mail", **given})
            assert (response.status_code, response.json()["code"]) == (403, "out_of_scope")
        batch = {"jobs": [{"kind": "mail"}, {"kind": "mail", "queue": "mail", "group": "acme"}]}
        body = (await client.post("/v1/jobs/batch", json=batch)).json()
        assert [item["status"] for item in body["items"]] == [403, 202]
        assert len(await ids(client)) == 2


UNIQUE = {"kind": "mail", "unique": {"key": "nightly"}, "group": "acme"}


@pytest.mark.parametrize(
    ("role", "scope"), [("submitter", {}), ("operator", {"groups": ["acme"]}), ("submitter", {"queues": ["default"]})]
)
@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "mine"}], ids=["plain", "guarded"])
async def test_held_unique_key_does_not_leak_its_holder(
    api: ApiServer, role: str, scope: dict[str, Any], headers: dict[str, str]
) -> None:
    async with api.client("operator") as operator, api.client(role, **scope) as client:
        holder = await submit_job(operator, unique={"key": "nightly"}, group="other")
        for _ in range(2):
            response = await client.post("/v1/jobs", json=UNIQUE, headers=headers)
            assert holder not in response.text + str(response.headers)
        assert (response.status_code, response.json()["code"]) == (409, "unique_key_held")
        assert [error["pointer"] for error in response.json()["errors"]] == ["/unique/key"]
        batch = await client.post("/v1/jobs/batch", json={"jobs": [{"kind": "x", "group": "acme"}, UNIQUE]})
        taken, refused = batch.json()["items"]
        assert (taken["status"], refused["status"], refused["code"]) == (202, 409, "unique_key_held")
        assert refused["errors"][0]["pointer"] == "/jobs/1/unique/key"
        assert holder not in response.text + batch.text + str(response.headers)
        assert set(await ids(operator)) == {holder, taken["id"]}


async def test_own_unique_key_returns_the_own_job(api: ApiServer) -> None:
    async with api.client("submitter") as client:
        first = await submit_job(client, unique={"key": "nightly"})
        response = await client.post("/v1/jobs", json=UNIQUE)
        assert (response.status_code, response.json()["id"], response.json()["created"]) == (202, first, False)


async def bulk(client: httpx.AsyncClient, **given: object) -> httpx.Response:
    return await client.post("/v1/jobs/actions", json=given)


async def test_bulk_stays_in_scope(api: ApiServer) -> None:
    async with (
        api.client("operator") as operator,
        api.client("operator", queues=["a", "c"]) as confined,
        api.client("submitter") as submitter,
    ):
        made = [await submit_job(operator, queue=queue) for queue in "ab"]
        own = await submit_job(submitter, queue="b")
        everything = {"state": ["PENDING"]}
        assert (await bulk(submitter, action="delete", ids=[own])).status_code == 403
        body = (await bulk(submitter, action="cancel", ids=[*made, own])).json()
        assert (body["changed_ids"], body["not_found_ids"]) == ([own], made)
        assert (await bulk(submitter, action="cancel", filter=everything)).json() == {"changed": 0, "unchanged": 0}
        assert (await bulk(confined, action="delete", ids=made)).json()["changed_ids"] == [made[0]]
        assert (await bulk(confined, action="delete", filter=everything)).json() == {"changed": 0, "unchanged": 0}
        assert await ids(operator, state="PENDING") == [made[1]]


async def test_redrive_stays_in_scope(api: ApiServer) -> None:
    async with api.client("operator") as operator, api.client("operator", groups=["a"]) as confined:
        dead = {group: await submit_job(operator, group=group) for group in "ab"}
        for _ in dead:
            await settle(api.store, await claim_one(api.store), Failed(message="no", retry=False))
        assert await ids(confined, "/v1/dead-letters") == [dead["a"]]
        response = await confined.post("/v1/dead-letters/redrive", json={"ids": list(dead.values())})
        assert response.json()["changed_ids"] == [dead["a"]]
        assert await ids(operator, "/v1/dead-letters") == [dead["b"]]
