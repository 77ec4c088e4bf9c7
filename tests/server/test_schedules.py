"""Schedules over HTTP: lifecycle, history, validation and scopes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2 as httpx
import msgspec
import pytest
from tests.server.support import ApiServer, api_server

from jobyard.domain.instant import instant
from jobyard.domain.schedule import TAG, Verdict
from jobyard.operations.audit_log import Audit
from jobyard.operations.schedule_options import make_schedule
from jobyard.operations.schedules import Schedules
from jobyard.ports.admin_store import Filter
from jobyard.ports.schedule_store import Tick
from jobyard.server.pagination import decode_page_token, encode_page_token

NIGHTLY = {
    "name": "nightly",
    "expression": "0 2 * * *",
    "timezone": "Asia/Seoul",
    "kind": "report",
    "payload": {"days": 1},
    "queue": "reports",
    "group": "acme",
}


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with api_server() as made:
        yield made


async def add(client: httpx.AsyncClient, **words: Any) -> dict[str, Any]:
    response = await client.post("/v1/schedules", json=NIGHTLY | words)
    assert response.status_code == 201, response.text
    found: dict[str, Any] = response.json()
    return found


async def test_schedule_lifecycle(api: ApiServer) -> None:
    async with api.client("operator") as client:
        response = await client.post("/v1/schedules", json=NIGHTLY | {"name": "a/b"})
        assert response.headers["location"] == "/v1/schedules/a%2Fb"
        made = response.json()
        assert (made["in_words"], made["max_retry"], made["timeout_seconds"]) == ("At 02:00 every day", 3, 300.0)
        assert (made["origin"], made["is_declared"], made["enabled"]) == ("managed", True, True)
        assert made["next_at"].endswith("T17:00:00.000Z"), "two in the morning in Seoul"
        here = response.headers["location"]
        assert (await client.get(here)).json() == made
        changed = (await client.patch(here, json={"expression": "@hourly", "group": None})).json()
        assert (changed["expression"], changed["group"], changed["kind"]) == ("@hourly", None, "report")
        assert changed["revision"] > made["revision"]
        paused = (await client.post(f"{here}/pause")).json()
        assert (paused["enabled"], paused["next_at"]) == (False, None)
        assert (await client.get(f"{here}/next")).json()["items"] == []
        assert (await client.post(f"{here}/resume")).json()["enabled"]
        coming = (await client.get(f"{here}/next", params={"count": 2})).json()
        assert instant(coming["items"][1]) - instant(coming["items"][0]) == 3_600_000
        assert (await client.get(f"{here}/history")).json() == {"items": []}
        ran = await client.post(f"{here}/run")
        assert ran.status_code == 202
        job = (await client.get(ran.headers["location"])).json()
        assert (job["id"], job["kind"], job["payload"]) == (ran.json()["job_id"], "report", {"days": 1})
        assert (await client.delete(here)).status_code == 204
        gone = await client.get(here)
        assert (gone.status_code, gone.json()["code"]) == (404, "schedule_not_found")
    actions = [entry.action for entry in await Audit(api.store).read()]
    assert actions == [f"schedule.{word}" for word in ("add", "edit", "pause", "resume", "run", "remove")]


async def test_schedule_history(api: ApiServer) -> None:
    async with api.client("operator") as client:
        await add(client)
        schedule = await Schedules(api.store).get("nightly")
        at = await api.store.now() + 1
        for number in range(3):
            await tick(api, schedule, at + number)
        first = (await client.get("/v1/schedules/nightly/history", params={"page_size": 2})).json()
        assert [instant(each["at"]) for each in first["items"]] == [at + 2, at + 1]
        assert {(each["verdict"], each["state"]) for each in first["items"]} == {("fired", "PENDING")}
        following = {"page_size": 2, "page_token": first["next_page_token"]}
        [last] = (await client.get("/v1/schedules/nightly/history", params=following)).json()["items"]
        assert (instant(last["at"]), last["count"], last["is_pruned"]) == (at, 1, False)
        jobs = (await api.store.find(Filter(tag=f"{TAG}nightly"))).jobs
        assert last["job_id"] in [job.id for job in jobs]
        not_a_time = str(encode_page_token("abc", "/v1/schedules/{schedule}/history\nnightly\n"))
        wrong = await client.get("/v1/schedules/nightly/history", params={"page_token": not_a_time})
        assert (wrong.status_code, wrong.json()["code"]) == (422, "bad_page_token")


async def tick(api: ApiServer, schedule: Any, at: int) -> None:
    job = msgspec.structs.replace(schedule.job(f"job-{at}", at), unique=None)
    ticked = Tick(
        schedule=schedule.name, queue=schedule.queue, revision=schedule.revision, at=at, verdict=Verdict.FIRED, job=job
    )
    [decided] = await api.store.decide([ticked])
    assert decided.job_id == job.id


@pytest.mark.parametrize(
    ("words", "pointer"),
    [
        ({"expression": "61 * * * *"}, "/expression"),
        ({"expression": "* * * * * *"}, "/expression"),
        ({"expression": "0 0 31 2 *"}, "/expression"),
        ({"timezone": "Asia/Soul"}, "/timezone"),
        ({"overlap": "queue", "missed": "skip"}, "/missed"),
        ({"payload": [1]}, "/payload"),
        ({"max_retry": -1}, "/max_retry"),
        ({"timeout_seconds": 0}, "/timeout_seconds"),
        ({"cron": "@daily"}, "/cron"),
        ({"name": ".."}, "/name"),
        ({"start_at": "9999-12-31T23:59:59.999Z"}, "/expression"),
        ({"timezone": "localtime"}, "/timezone"),
        ({"missed": "all"}, "/missed"),
        ({"overlap": "never"}, "/overlap"),
    ],
)
async def test_invalid_schedule_fields_have_pointers(api: ApiServer, words: dict[str, Any], pointer: str) -> None:
    async with api.client("operator") as client:
        response = await client.post("/v1/schedules", json=NIGHTLY | words)
        assert response.status_code == 422
        [error] = response.json()["errors"]
        assert error["pointer"] == pointer
        assert (await client.get("/v1/schedules")).json()["items"] == []
        await add(client)
        if not words.keys() & {"cron", "name"}:
            assert (await client.patch("/v1/schedules/nightly", json=words)).status_code == 422


async def test_duplicate_name_and_declared_schedule_are_conflicts(api: ApiServer) -> None:
    declared = make_schedule({"name": "declared", "expression": "@daily", "kind": "report"})
    await Schedules(api.store).declare("file", [declared])
    async with api.client("operator") as client:
        await add(client)
        again = await client.post("/v1/schedules", json=NIGHTLY)
        assert (again.status_code, again.json()["code"]) == (409, "not_possible")
        edited = await client.patch("/v1/schedules/declared", json={"expression": "@hourly"})
        assert (edited.status_code, "jobyard.yaml" in edited.json()["detail"]) == (409, True)
        assert (await client.delete("/v1/schedules/declared")).status_code == 409
        assert not (await client.post("/v1/schedules/declared/pause")).json()["enabled"]
        assert (await client.post("/v1/schedules/declared/run")).status_code == 202


async def test_cron_expression_is_explained(api: ApiServer) -> None:
    asked: dict[str, Any] = {"expression": "0 9 * * 1-5", "timezone": "Asia/Seoul", "count": 3}
    async with api.client("viewer") as client:
        found = (await client.get("/v1/cron/next", params=asked)).json()
        assert found["in_words"] == "At 09:00 on Monday through Friday"
        assert [each[10:] for each in found["items"]] == ["T00:00:00.000Z"] * 3
        assert (await client.get("/v1/cron/next", params=asked | {"count": 101})).status_code == 422
        wrong = await client.get("/v1/cron/next", params=asked | {"timezone": "Mars"})
        assert [each["pointer"] for each in wrong.json()["errors"]] == ["timezone"]
        wrong = await client.get("/v1/cron/next", params=asked | {"expression": "soon"})
        assert [each["pointer"] for each in wrong.json()["errors"]] == ["expression"]
        for field, value in (("timezone", "Mars"), ("expression", "soon")):
            checked = await client.get("/v1/cron/next", params=asked | {field: value, "check": True})
            assert (checked.status_code, checked.json()["valid"], checked.json()["items"]) == (200, False, [])
            assert value in checked.json()["message"]
        checked = (await client.get("/v1/cron/next", params=asked | {"check": True})).json()
        assert (checked["valid"], checked["items"]) == (True, found["items"])


async def test_schedules_are_paged_by_name_within_scope(api: ApiServer) -> None:
    async with api.client("admin") as client:
        for number in range(7):
            await add(client, name=f"s{number}", queue="mail" if number % 2 else "reports", kind=f"k{number}")
    assert await names(api, "viewer") == [f"s{number}" for number in range(7)]
    assert await names(api, "viewer", queues=("mail",)) == ["s1", "s3", "s5"]
    assert await names(api, "viewer", groups=("other",)) == []
    async with api.client("viewer") as client:
        [only] = (await client.get("/v1/schedules", params={"kind": "k3"})).json()["items"]
        assert only["name"] == "s3"


async def test_page_token_leaks_no_schedule_name(api: ApiServer) -> None:
    async with api.client("admin") as client:
        for number in range(9):
            await add(client, name=f"s{number}", queue="mail" if number in (1, 4, 5) else "hidden")
    schedule_tokens: list[str] = []
    assert await names(api, "viewer", queues=("mail",), tokens=schedule_tokens) == ["s1", "s4", "s5"]
    assert [decode_page_token(each, "/v1/schedules\n") for each in schedule_tokens] == ["s4"]
    assert await names(api, "viewer") == [f"s{number}" for number in range(9)]


async def names(api: ApiServer, role: str, tokens: list[str] | None = None, **scope: Any) -> list[str]:
    found: list[str] = []
    params = {"page_size": "2"}
    async with api.client(role, **scope) as client:
        while True:
            page = (await client.get("/v1/schedules", params=params)).json()
            found += [each["name"] for each in page["items"]]
            if "next_page_token" not in page:
                return found
            params["page_token"] = page["next_page_token"]
            if tokens is not None:
                tokens.append(page["next_page_token"])


async def test_schedule_out_of_scope_is_not_found(api: ApiServer) -> None:
    async with api.client("admin") as client:
        await add(client)
    scopes: list[tuple[str, dict[str, Any]]] = [
        ("submitter", {}),
        ("operator", {"queues": ("mail",)}),
        ("operator", {"groups": ("other",)}),
    ]
    for role, scope in scopes:
        async with api.client(role, **scope) as client:
            refused = 403 if role == "submitter" else 404
            assert (await client.get("/v1/schedules/nightly")).status_code == refused
            assert (await client.get("/v1/schedules/nightly/next")).status_code == refused
            assert (await client.get("/v1/schedules/nightly/history")).status_code == refused
            assert (await client.post("/v1/schedules/nightly/pause")).status_code == refused
            assert (await client.post("/v1/schedules/nightly/run")).status_code == refused
            assert (await client.delete("/v1/schedules/nightly")).status_code == refused
            assert (await client.post("/v1/schedules", json=NIGHTLY | {"name": "mine"})).status_code == 403
    async with api.client("operator", queues=("reports",)) as client:
        moved = await client.patch("/v1/schedules/nightly", json={"queue": "mail"})
        assert (moved.status_code, moved.json()["code"]) == (403, "out_of_scope")
        assert (await client.patch("/v1/schedules/nightly", json={"priority": 3})).json()["priority"] == 3
