"""Restricted tokens learn nothing out of scope: not from page tokens, counts, names or errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.conformance.support import new
from tests.server.sse import listening
from tests.server.support import ApiServer, api_server, ids, serving, submit_job
from tests.support import eventually

from jobyard.domain.ids import new_id
from jobyard.domain.job import NewJob
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.server.pagination import encode_page_token

SCOPES: list[dict[str, Any]] = [
    {"queues": ["mine"]},
    {"queues": ["mine", "too"]},
    {"groups": ["mine"]},
    {"groups": ["mine", "too"]},
]
ASKED: list[dict[str, Any]] = [{}, {"queue": "theirs"}, {"group": "theirs"}, {"kind": "secret"}, {"text": "hunter"}]


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with api_server() as made:
        yield made


async def fill(api: ApiServer, number: int) -> None:
    """Jobs of other tokens."""
    jobs = [new(queue="theirs", group="theirs", kind="secret", payload=b'{"password":"hunter"}') for _ in range(number)]
    await api.store.insert(jobs)


@pytest.mark.parametrize("asked", ASKED, ids=str)
@pytest.mark.parametrize("scope", SCOPES, ids=str)
@pytest.mark.parametrize("role", ["viewer", "operator"])
async def test_page_tokens_leak_nothing(
    api: ApiServer, role: str, scope: dict[str, Any], asked: dict[str, Any]
) -> None:
    texts = []
    async with api.client(role, **scope) as client:
        for number in (0, 40):
            await fill(api, number)
            response = await client.get("/v1/jobs", params={**asked, "page_size": 1})
            dead = await client.get("/v1/dead-letters", params={**asked, "page_size": 1})
            order = {"action": "cancel", "filter": {"state": ["PENDING"], **asked}, "limit": 1}
            changed = await client.post("/v1/jobs/actions", json=order)
            texts.append((response.text, dead.text, changed.text))
    assert texts[0] == texts[1]


async def test_jobs_of_several_queues_are_paged_newest_first(api: ApiServer) -> None:
    queues = ["a", "b", "c"]
    async with api.client("operator") as operator, api.client("viewer", queues=queues) as viewer:
        made = []
        for number in range(23):
            made.append(await submit_job(operator, queue=queues[number * number % 3], group="g"))
            await submit_job(operator, queue="theirs")
        for size in (1, 2, 7, 50):
            assert await ids(viewer, page_size=size) == made[::-1]
        assert await ids(viewer, queue="b", page_size=2) == await ids(operator, queue="b")
        of_one_queue = {"page_token": str(encode_page_token('[""]', "/v1/jobs\n"))}
        assert (await viewer.get("/v1/jobs", params=of_one_queue)).json()["code"] == "bad_page_token"
    async with api.client("operator", queues=queues, groups=["g", "h"]) as confined:
        order = {"action": "cancel", "filter": {"state": ["PENDING"]}, "limit": 5}
        changed = 0
        while True:
            response = (await confined.post("/v1/jobs/actions", json=order)).json()
            changed += response["changed"]
            if "next_page_token" not in response:
                break
            order["page_token"] = response["next_page_token"]
        assert changed == 23


async def test_too_many_queues_need_a_filter(api: ApiServer) -> None:
    many = [f"q{number}" for number in range(21)]
    async with api.client("viewer", queues=many) as viewer:
        assert (await viewer.get("/v1/jobs")).status_code == 422
        assert (await viewer.get("/v1/jobs", params={"queue": "q7"})).status_code == 200
    async with api.client("submitter", queues=many) as submitter:
        own = await submit_job(submitter, queue="q20")
        assert await ids(submitter) == [own]


async def test_page_token_leaks_no_group_name(api: ApiServer) -> None:
    async with api.client("operator") as operator, api.client("viewer", groups=["c", "m", "x"]) as viewer:
        for name in "abcdefghijklmnopqrstuvwxyz":
            await submit_job(operator, queue="q", group=f"{name}" if name in "cmx" else f"{name}-secret")
        seen, params = [], {"page_size": 1}
        while True:
            response = (await viewer.get("/v1/queues/q/groups", params=params)).json()
            seen += [group["name"] for group in response["items"]]
            if "next_page_token" not in response:
                break
            params = {"page_size": 1, "page_token": response["next_page_token"]}
            assert response["items"], "no page is empty because of others"
        assert seen == ["c", "m", "x"]


async def test_token_with_groups_cannot_create_a_queue(api: ApiServer) -> None:
    async with api.client("admin", groups=["g"]) as confined, api.client("viewer") as viewer:
        response = await confined.patch("/v1/queues/new", json={"max_running": 1})
        assert (response.status_code, response.json()["code"]) == (403, "not_allowed")
        assert (await viewer.get("/v1/queues")).json() == {"items": []}


async def test_token_names_out_of_scope_do_not_leak(api: ApiServer) -> None:
    await api.tokens.create("ci", "viewer")
    asked = {"name": "ci", "role": "viewer", "queues": ["mine"]}
    async with api.client("admin", queues=["mine"]) as confined:
        assert (await confined.post("/v1/tokens", json=asked)).status_code == 201
        assert (await confined.post("/v1/tokens", json=asked)).status_code == 422


@pytest.mark.parametrize("scope", [{"queues": ["mine", "too"]}, {"groups": ["mine", "too"]}], ids=str)
async def test_snapshot_shows_own_jobs_among_many_others(api: ApiServer, scope: dict[str, Any]) -> None:
    async with api.client("operator") as operator, serving(api.app) as url:
        own = await submit_job(operator, queue="mine", group="mine")
        await fill(api, 60)
        async with api.client("viewer", **scope) as viewer:
            client = type(viewer)(base_url=url, headers=viewer.headers, timeout=60)
            async with client, listening(client, "/v1/events") as reader:
                await eventually(lambda: reader.first("snapshot"))
                assert [job["id"] for job in reader.events[0]["data"]["jobs"]] == [own]
        api.dependencies.draining.set()


async def test_submitter_sees_no_queues(api: ApiServer) -> None:
    async with api.client("submitter") as submitter, serving(api.app) as url:
        await fill(api, 3)
        client = type(submitter)(base_url=url, headers=submitter.headers, timeout=60)
        async with client, listening(client, "/v1/events") as reader:
            await eventually(lambda: reader.first("snapshot"))
            assert reader.events[0]["data"] == {"queues": [], "jobs": []}
        for path in ("/v1/queues", "/v1/queues/theirs", "/v1/queues/theirs/groups", "/v1/workers"):
            assert (await submitter.get(path)).status_code == 403
        api.dependencies.draining.set()


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "1900-01-01T00:00:00Z"])
async def test_extreme_times_can_be_shown(api: ApiServer, time: str) -> None:
    async with api.client("operator") as client:
        job_id = await submit_job(client, run_at=time)
        assert (await client.get(f"/v1/jobs/{job_id}")).status_code == 200
        assert await ids(client) == [job_id]
        await api.store.insert([new(run_at=-(10**14))])  # bypasses validation, as another program could
        assert len(await ids(client)) == 2
        assert (await client.get("/v1/jobs", params={"created_after": "0001-01-01T00:00:00+23:59"})).status_code == 200


async def test_rates_are_limited_to_queues_in_scope(api: ApiServer) -> None:
    rates = {"mine": 5, "theirs": 7}
    for name in ("a", "b"):
        worker = WorkerInfo(id=name, host="h", pid=1, queues=(), concurrency=1, finished_per_minute=rates)
        await api.store.heartbeat(worker, 60)
    async with api.client("operator") as operator, api.client("viewer", queues=("mine",)) as viewer:
        await submit_job(operator, queue="mine")
        await submit_job(operator, queue="theirs")
        shown = {
            queue["name"]: queue["finished_per_minute"] for queue in (await operator.get("/v1/queues")).json()["items"]
        }
        assert shown == {"mine": 10, "theirs": 14}
        assert (await viewer.get("/v1/queues/mine")).json()["finished_per_minute"] == 10
        assert (await operator.get("/v1/workers")).json()["items"][0]["finished_per_minute"] == rates
        assert (await viewer.get("/v1/workers")).json()["items"][0]["finished_per_minute"] == {"mine": 5}


@pytest.mark.parametrize("scope", [{"queues": ["mine"]}, {"groups": ["mine"]}, {"kinds": ["mail"]}], ids=str)
async def test_the_kinds_of_a_worker_are_not_shown_to_restricted_tokens(api: ApiServer, scope: dict[str, Any]) -> None:
    worker = WorkerInfo(id="w", host="h", pid=1, queues=("mine",), concurrency=1, kinds=("mail", "secret"))
    await api.store.heartbeat(worker, 60)
    async with api.client("viewer") as everything, api.client("viewer", **scope) as viewer:
        assert (await everything.get("/v1/workers")).json()["items"][0]["kinds"] == ["mail", "secret"]
        assert "secret" not in (await viewer.get("/v1/workers")).text


@pytest.mark.parametrize("queues", [(), ("theirs", "mine")], ids=["all queues", "two queues"])
async def test_a_shared_worker_shows_only_what_is_in_scope(api: ApiServer, queues: tuple[str, ...]) -> None:
    shared = WorkerInfo(id="a", host="h", pid=1, queues=queues, concurrency=4, running=3, completed=99)
    own = WorkerInfo(id="b", host="h", pid=2, queues=("mine",), concurrency=4, running=2, completed=5)
    for worker in (shared, own):
        await api.store.heartbeat(worker, 60)
    shown = ("queues", "running", "completed")

    async def workers(client: Any) -> list[list[Any]]:
        found = sorted((await client.get("/v1/workers")).json()["items"], key=lambda worker: str(worker["id"]))
        return [[worker[name] for name in shown] for worker in found]

    async with api.client("operator") as operator, api.client("viewer", queues=("mine", "other")) as viewer:
        assert await workers(operator) == [[list(queues), 3, 99], [["mine"], 2, 5]]
        of_shared = [["mine"] if queues else ["mine", "other"], 3, None]
        assert await workers(viewer) == [of_shared, [["mine"], 2, 5]]
    async with api.client("viewer", queues=("mine",), kinds=("mail",)) as viewer:
        assert await workers(viewer) == [[["mine"], None, None], [["mine"], None, None]]


async def test_jobs_out_of_scope_are_counted_and_not_named(api: ApiServer) -> None:
    worker = WorkerInfo(id="w", host="h", pid=1, queues=(), concurrency=4, running=3)
    await api.store.heartbeat(worker, 60)
    jobs = [NewJob(id=new_id(), kind="send", queue=queue) for queue in ("mine", "theirs", "theirs")]
    await api.store.insert(jobs)
    await api.store.exchange("w", [], ("mine", "theirs"), 3, 60.0)
    await api.store.adopt(NewJob(id=new_id(), kind="runner", queue="theirs"), "w", "pod-1")  # takes no slot
    cases: list[tuple[dict[str, Any], int | None, int, int | None]] = [
        ({"queues": ("mine",)}, 3, 1, 2),
        ({}, 3, 4, 0),
        ({"groups": ("mine",)}, None, 0, None),
        ({"queues": ("mine",), "kinds": ("send",)}, None, 1, None),
    ]
    for scope, running, listed, hidden in cases:
        async with api.client("viewer", **scope) as viewer:
            [shown] = (await viewer.get("/v1/workers", params={"jobs": "true"})).json()["items"]
            assert (shown["running"], len(shown["jobs"]), shown["jobs_out_of_scope"]) == (running, listed, hidden)


COUNTS = ("waiting", "delayed", "running", "completed", "failed", "cancelled", "finished_per_minute")


@pytest.mark.parametrize("scope", [{"groups": ["mine"]}, {"kinds": ["mail"]}], ids=str)
async def test_counts_of_whole_queues_are_not_shown(api: ApiServer, scope: dict[str, Any]) -> None:
    worker = WorkerInfo(id="w", host="h", pid=1, queues=(), concurrency=1, finished_per_minute={"theirs": 7})
    await api.store.heartbeat(worker, 60)
    await fill(api, 3)
    async with api.client("viewer", **scope) as viewer, serving(api.app) as url:
        for response in (await viewer.get("/v1/queues/theirs"), await viewer.get("/v1/queues")):
            shown = response.json().get("items", [response.json()])
            assert [[queue[name] for name in COUNTS] for queue in shown] == [[None] * len(COUNTS)]
        assert (await viewer.get("/v1/workers")).json()["items"][0]["finished_per_minute"] == {}
        client = type(viewer)(base_url=url, headers=viewer.headers, timeout=60)
        async with client, listening(client, "/v1/events") as reader:
            await eventually(lambda: reader.first("snapshot"))
            assert reader.events[0]["data"] == {"queues": [], "jobs": []}
        api.dependencies.draining.set()
    async with api.client("viewer", kinds=["mail"]) as viewer:
        assert (await viewer.get("/v1/queues/theirs/groups")).status_code == 403
