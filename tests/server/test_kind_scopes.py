"""Tokens run only kinds in their scope: those that they name, or whose handlers declare one of their queues."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.server.support import ApiServer, api_server, ids, submit_job

from jobyard import Jobyard
from jobyard.app.declarations import declarations_of

yard = Jobyard("memory://")


@yard.job(queue="mail")
def send() -> None: ...


@yard.job(queue="money")
def pay() -> None: ...


MAIL: dict[str, Any] = {"queues": ["mail"]}
ANY_OF_MAIL: dict[str, Any] = {"queues": ["mail"], "kinds": ["send", "pay"]}
NIGHTLY = {"name": "nightly", "expression": "@daily", "kind": "pay", "queue": "mail"}


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with api_server(job_factory=declarations_of(yard).job_factory) as made:
        yield made


@pytest.mark.parametrize("role", ["submitter", "operator", "admin"])
async def test_token_with_queues_runs_kinds_that_declare_them(api: ApiServer, role: str) -> None:
    async with api.client(role, **MAIL) as client, api.client("viewer") as viewer:
        own = await submit_job(client, "send")
        for kind in ("pay", "pai", "sent"):
            response = await client.post("/v1/jobs", json={"kind": kind, "queue": "mail"})
            assert (response.status_code, response.json()["code"]) == (403, "out_of_scope")
            assert kind == "pay" or "pay" not in response.text, "suggests no other kind"
        batch = {"jobs": [{"kind": "pay", "queue": "mail"}, {"kind": "send"}, {"kind": "send", "queue": "money"}]}
        items = (await client.post("/v1/jobs/batch", json=batch)).json()["items"]
        assert [item["status"] for item in items] == [403, 202, 403]
        assert set(await ids(viewer)) == {own, items[1]["id"]}


@pytest.mark.parametrize(
    ("scope", "shown"),
    [({}, ["pay", "send"]), (MAIL, ["send"]), (ANY_OF_MAIL, ["pay", "send"]), ({"kinds": ["pay"]}, ["pay"])],
    ids=str,
)
async def test_kinds_in_scope_are_listed(api: ApiServer, scope: dict[str, Any], shown: list[str]) -> None:
    async with api.client("submitter", **scope) as client:
        listed = (await client.get("/v1/kinds")).json()
        assert ([kind["name"] for kind in listed["items"]], listed["any_kind"]) == (shown, False)


async def test_kinds_of_a_token_say_otherwise(api: ApiServer) -> None:
    async with api.client("submitter", **ANY_OF_MAIL) as both, api.client("submitter", kinds=["send"]) as one:
        assert await submit_job(both, "pay", queue="mail")
        assert (await both.post("/v1/jobs", json={"kind": "pay"})).json()["code"] == "out_of_scope"
        assert await submit_job(one, "send", queue="money")
        assert (await one.post("/v1/jobs", json={"kind": "pay"})).json()["code"] == "out_of_scope"


async def test_schedules_run_kinds_in_scope(api: ApiServer) -> None:
    async with api.client("operator") as operator, api.client("operator", **MAIL) as confined:
        response = await confined.post("/v1/schedules", json=NIGHTLY)
        assert (response.status_code, response.json()["code"]) == (403, "out_of_scope")
        assert (await confined.post("/v1/schedules", json=NIGHTLY | {"kind": "send"})).status_code == 201
        assert (await confined.patch("/v1/schedules/nightly", json={"kind": "pay"})).status_code == 403
        assert (await confined.post("/v1/schedules/nightly/run")).status_code == 202
        assert (await operator.patch("/v1/schedules/nightly", json={"kind": "pay"})).status_code == 200
        for path, body in (("/run", None), ("/resume", None), ("", {"payload": {}})):
            method = "POST" if body is None else "PATCH"
            response = await confined.request(method, f"/v1/schedules/nightly{path}", json=body)
            assert (response.status_code, response.json()["code"]) == (403, "out_of_scope")
        assert (await confined.post("/v1/schedules/nightly/pause")).status_code == 200
    async with api.client("operator", kinds=["send"]) as other:
        assert (await other.get("/v1/schedules")).json()["items"] == []
        assert (await other.post("/v1/schedules/nightly/run")).status_code == 404


async def test_token_with_kinds_sees_their_jobs_only(api: ApiServer) -> None:
    async with api.client("operator") as operator, api.client("operator", kinds=["send"]) as confined:
        sent, paid = await submit_job(operator, "send"), await submit_job(operator, "pay", queue="mail")
        assert await ids(confined) == [sent]
        assert await ids(confined, kind="pay") == []
        assert (await confined.get(f"/v1/jobs/{paid}")).status_code == 404
        change = {"action": "cancel", "filter": {"state": ["PENDING"]}}
        assert (await confined.post("/v1/jobs/actions", json=change)).json()["changed"] == 1
        for path in ("/v1/queues/mail/drain", "/v1/queues/mail/pause", "/v1/queues/mail/groups/acme/pause"):
            assert (await confined.post(path)).status_code == 403
        assert (await operator.get(f"/v1/jobs/{paid}")).json()["state"] == "PENDING"


@pytest.mark.parametrize(
    ("scope", "wanted", "status"),
    [
        (MAIL, {"queues": ["mail"], "kinds": ["pay"]}, 403),
        (MAIL, {"queues": ["mail"], "kinds": ["send"]}, 201),
        ({"kinds": ["send"]}, {}, 403),
        ({"kinds": ["send"]}, {"kinds": ["pay"]}, 403),
        ({"kinds": ["send"]}, {"kinds": ["send"], "queues": ["mail"]}, 201),
        ({}, {"kinds": ["pay"]}, 201),
    ],
    ids=str,
)
async def test_token_cannot_create_one_with_more_kinds(
    api: ApiServer, scope: dict[str, Any], wanted: dict[str, Any], status: int
) -> None:
    async with api.client("admin", **scope) as admin:
        response = await admin.post("/v1/tokens", json={"name": "new", "role": "viewer"} | wanted)
        assert response.status_code == status
        if status == 201:
            assert response.json()["kinds"] == wanted["kinds"]


async def test_token_with_more_kinds_is_not_found(api: ApiServer) -> None:
    more, _ = await api.tokens.create("more", "submitter", **ANY_OF_MAIL)
    async with api.client("admin", **MAIL) as admin:
        assert "more" not in [each["name"] for each in (await admin.get("/v1/tokens")).json()["items"]]
        assert (await admin.post(f"/v1/tokens/{more.id}/rotate", json={})).status_code == 404
        assert (await admin.delete(f"/v1/tokens/{more.id}")).status_code == 404


@pytest.mark.parametrize("role", ["submitter", "operator", "admin"])
@pytest.mark.parametrize("has_app", [False, True])
async def test_programs_are_submitted_through_their_own_route(role: str, has_app: bool) -> None:
    job = {"kind": "execute", "queue": "code", "group": "another", "private_payload": {"source": "1"}}
    factory = declarations_of(yard).job_factory if has_app else None
    async with api_server(job_factory=factory) as api, api.client(role) as client, api.client("operator") as operator:
        refused = (await client.post("/v1/jobs", json=job)).json()
        assert (refused["status"], refused["code"], refused["errors"][0]["pointer"]) == (422, "bad_option", "/kind")
        assert "POST /execute" in refused["detail"]
        # A webhook would deliver the result of any program, no matter which client submitted it.
        webhook = await client.post("/v1/jobs", json={"kind": "execution-webhook", "queue": "webhooks"})
        assert (webhook.status_code, webhook.json()["errors"][0]["pointer"]) == (422, "/kind")
        [item] = (await client.post("/v1/jobs/batch", json={"jobs": [job]})).json()["items"]
        assert (item["status"], item["errors"][0]["pointer"]) == (422, "/jobs/0/kind")
        assert (await operator.post("/v1/schedules", json=NIGHTLY)).status_code == 201
        added = await operator.post("/v1/schedules", json=NIGHTLY | {"kind": "execute"})
        edited = await operator.patch("/v1/schedules/nightly", json={"kind": "execute"})
        for response in (added, edited):
            assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/kind")
        assert await ids(operator) == []


@pytest.mark.parametrize("has_app", [False, True])
@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        # The file travels with the job: a token for runs of the server's files could bring a file of its own.
        (
            "jobyard.workflow",
            {"workflow_id": "a", "version": 1, "digest": "d", "params": {}}
            | {"text": '{"id": "a", "steps": [{"id": "s", "kind": "pay"}]}'},
        ),
        ("runner", {"org_name": "acme", "profile": "small", "job_id": 1}),
    ],
)
async def test_jobs_that_only_the_server_makes_cannot_be_forged(
    kind: str, payload: dict[str, Any], has_app: bool
) -> None:
    factory = declarations_of(yard).job_factory if has_app else None
    async with api_server(job_factory=factory) as api, api.client("operator", kinds=[kind]) as client:
        job = {"kind": kind, "payload": payload}
        [item] = (await client.post("/v1/jobs/batch", json={"jobs": [job]})).json()["items"]
        assert (item["status"], item["errors"][0]["pointer"]) == (422, "/jobs/0/kind")
        schedule = {"name": "nightly", "expression": "@daily"} | job
        for response in (await client.post("/v1/jobs", json=job), await client.post("/v1/schedules", json=schedule)):
            assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/kind")
            assert "is reserved for" in response.json()["detail"]


async def test_an_app_may_have_its_own_kind_of_that_name() -> None:
    own = Jobyard("memory://")

    @own.job()
    def execute() -> None: ...

    async with api_server(job_factory=declarations_of(own).job_factory) as api, api.client("submitter") as client:
        assert await submit_job(client, "execute")


async def test_without_an_app_a_token_with_queues_submits_any_kind() -> None:
    async with api_server() as api, api.client("submitter", **MAIL) as client:
        assert await submit_job(client, "pay", queue="mail")
        assert (await client.get("/v1/kinds")).json() == {"items": [], "any_kind": True}
        async with api.client("submitter", kinds=["send"]) as one:
            assert (await one.get("/v1/kinds")).json()["any_kind"] is False
            assert (await one.post("/v1/jobs", json={"kind": "pay"})).json()["code"] == "out_of_scope"
