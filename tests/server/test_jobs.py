"""Jobs over HTTP: submit, list, get, wait, explain."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.conformance.support import claim_one, settle
from tests.server.support import ApiServer, api_server, ids, submit_job
from tests.support import eventually

from jobyard.config.sections import ServerSection
from jobyard.domain.job import Job, LogLine, Progress, QueueSettings, Step
from jobyard.domain.outcome import Done, Failed
from jobyard.ports.job_store import Report
from jobyard.server.rate_limit import OpenRequestLimit

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with api_server() as made:
        yield made


async def test_accepted_job_is_found_at_its_location(api: ApiServer) -> None:
    async with api.client("operator") as client:
        response = await client.post("/v1/jobs", json={"kind": "mail", "payload": {"to": "you"}, "queue": "letters"})
        assert response.status_code == 202
        accepted = response.json()
        assert accepted == {"id": accepted["id"], "kind": "mail", "queue": "letters", "created": True}
        assert response.headers["location"] == f"/v1/jobs/{accepted['id']}"
        found = await client.get(response.headers["location"])
    job = found.json()
    assert (job["id"], job["state"], job["payload"], job["queue"]) == (
        accepted["id"],
        "PENDING",
        {"to": "you"},
        "letters",
    )
    assert TIME.fullmatch(job["created_at"])
    assert found.headers["retry-after"] == "1"


async def test_progress_and_log_are_shown(api: ApiServer) -> None:
    store = api.store
    async with api.client("operator") as client:
        job_id = await submit_job(client, max_attempts=2, backoff={"type": "fixed", "seconds": 0})
        lease = await claim_one(store)
        await settle(store, lease, Failed(message="no", type="ValueError", traceback="Traceback …"))
        lease = await claim_one(store)
        report = Report(
            key=lease.key,
            progress=Progress(percent=50, message="half", data={"done": 1}),
            lines=(LogLine(message="hello"),),
            step=Step(name="first", status="passed"),
        )
        assert await store.report([report]) == ()
        await settle(store, lease, Done(b'{"sum": 3}'))
        job = (await client.get(f"/v1/jobs/{job_id}")).json()
        [listed] = (await client.get("/v1/jobs")).json()["items"]
    assert (job["state"], job["result"], job["attempt"]) == ("COMPLETED", {"sum": 3}, 2)
    [error] = job["errors"]
    assert (error["attempt"], error["ending"], error["message"], error["type"]) == (1, "error", "no", "ValueError")
    assert (job["progress"]["percent"], job["progress"]["data"]) == (50, {"done": 1})
    assert [(line["level"], line["message"]) for line in job["log"]] == [("info", "hello")]
    assert [(step["name"], step["status"]) for step in job["steps"]] == [("first", "passed")]
    times = [happening["at"] for happening in job["timeline"]]
    story = [happening["what"] for happening in job["timeline"] if happening["what"] != "due"]
    assert story == ["created", "attempt_ended", "started", "finished"]
    assert times == sorted(times)
    assert listed["errors"][0]["traceback"] is None
    assert not {"log", "steps", "timeline"} & set(listed)


async def test_private_payload_is_not_shown(api: ApiServer) -> None:
    async with api.client("admin") as client:
        job_id = await submit_job(client, private_payload={"password": "hush"})
        assert "hush" not in (await client.get(f"/v1/jobs/{job_id}")).text
    assert (await claim_one(api.store)).private_payload == b'{"password":"hush"}'


async def test_held_unique_key_returns_the_holder(api: ApiServer) -> None:
    async with api.client("operator") as client:
        first = await submit_job(client, unique={"key": "letter"})
        response = await client.post("/v1/jobs", json={"kind": "mail", "unique": {"key": "letter"}})
    assert (response.status_code, response.json()["id"], response.json()["created"]) == (202, first, False)


async def test_same_idempotency_key_returns_the_same_job(api: ApiServer) -> None:
    async with api.client("operator") as client:

        async def post(key: str, **given: Any) -> Any:
            return await client.post("/v1/jobs", json={"kind": "mail", **given}, headers={"Idempotency-Key": key})

        first, again, quoted = await post("a"), await post("a"), await post('"a"')
        other = await post("a", payload={"x": 1})
        assert [response.status_code for response in (first, again, quoted, other)] == [202, 202, 202, 422]
        assert first.json()["id"] == again.json()["id"] == quoted.json()["id"]
        assert "idempotency-replayed" not in first.headers
        assert again.headers["idempotency-replayed"] == "true"
        assert other.json()["code"] == "idempotency_key_reused"
        assert len(await ids(client)) == 1
        assert (await post("x" * 256)).status_code == 422


async def test_batch_reports_each_job(api: ApiServer) -> None:
    await api.store.configure("small", QueueSettings(max_waiting=1))
    jobs = [
        {"kind": "mail"},
        {"kind": "mail", "queue": "small"},
        {"kind": "mail", "queue": "small"},
        {"kind": "mail", "tags": ["by:me"]},
    ]
    async with api.client("operator") as client:
        response = await client.post("/v1/jobs/batch", json={"jobs": jobs}, headers={"Idempotency-Key": "b"})
        body = response.json()
        assert [item["status"] for item in body["items"]] == [202, 202, 429, 422]
        assert [item.get("code") for item in body["items"]] == [None, None, "queue_full", "bad_option"]
        assert (body["accepted"], body["refused"]) == (2, 2)
        again = (await client.post("/v1/jobs/batch", json={"jobs": jobs}, headers={"Idempotency-Key": "b"})).json()
        assert [item.get("id") for item in again["items"]] == [item.get("id") for item in body["items"]]
        wrong = await client.post("/v1/jobs/batch", json={"jobs": [{"kind": "a"}, {"kind": "b", "qeue": "c"}]})
        assert wrong.json()["errors"][0]["pointer"] == "/jobs/1/qeue"
        assert len(await ids(client)) == 2


async def test_list_is_filtered_and_paged(api: ApiServer) -> None:
    async with api.client("viewer") as viewer, api.client("operator") as client:
        made = [
            await submit_job(client, queue="a", group="acme", tags=["red"], payload={"city": "Zürich"}),
            await submit_job(client, kind="call", queue="a", group="other"),
            await submit_job(client, queue="b", tags=["red", "blue"]),
        ]
        assert await ids(viewer) == made[::-1]
        assert await ids(viewer, page_size=1) == made[::-1]
        assert await ids(viewer, queue="a") == [made[1], made[0]]
        assert await ids(viewer, group="acme") == [made[0]]
        assert await ids(viewer, kind="call") == [made[1]]
        assert await ids(viewer, id=[made[0], made[2], "nobody"], page_size=1) == [made[2], made[0]]
        assert (await viewer.get("/v1/jobs", params={"id": ["x"] * 101})).status_code == 422
        assert await ids(viewer, tag="red") == [made[2], made[0]]
        assert await ids(viewer, text="ZüRICH") == [made[0]]
        assert await ids(viewer, state=["COMPLETED", "PENDING"]) == made[::-1]
        assert await ids(viewer, state="COMPLETED") == []
        when = (await viewer.get(f"/v1/jobs/{made[1]}")).json()["created_at"]
        later = await ids(viewer, created_after=when)
        assert set(later) >= {made[1], made[2]}
        assert made[0] not in await ids(viewer, created_after="2999-01-01T00:00:00Z")
        assert await ids(viewer, created_before="1999-01-01T00:00:00Z") == []
        first = await viewer.get("/v1/jobs", params={"page_size": 1, "state": ["PENDING", "RUNNING"]})
        link = re.fullmatch(r'<(/v1/jobs\?[^>]*)>; rel="next"', first.headers["link"])
        assert link is not None
        assert [job["id"] for job in (await viewer.get(link[1])).json()["items"]] == [made[1]]


async def test_batch_idempotency_key(api: ApiServer) -> None:
    jobs = [{"kind": "mail", "payload": {"number": number}} for number in range(3)]
    async with api.client("operator") as client, api.client("operator") as other:

        async def post(some: list[Any], who: Any = client) -> Any:
            return await who.post("/v1/jobs/batch", json={"jobs": some}, headers={"Idempotency-Key": "b"})

        first, again = await post(jobs), await post(jobs)
        assert "idempotency-replayed" not in first.headers
        assert again.headers["idempotency-replayed"] == "true"
        assert [item["id"] for item in again.json()["items"]] == [item["id"] for item in first.json()["items"]]
        for another in (jobs[:2], [*jobs, {"kind": "more"}], jobs[::-1], [{**job, "queue": "other"} for job in jobs]):
            response = await post(another)
            assert (response.status_code, response.json()["code"]) == (422, "idempotency_key_reused")
        assert len(await ids(client)) == 3
        assert "idempotency-replayed" not in (await post(jobs[:1], other)).headers


async def test_keys_of_batches_and_single_jobs_do_not_collide(api: ApiServer) -> None:
    async with api.client("operator") as client:
        batch = {"jobs": [{"kind": "mail"}]}
        await client.post("/v1/jobs/batch", json=batch, headers={"Idempotency-Key": "k"})
        single = await client.post("/v1/jobs", json={"kind": "mail"}, headers={"Idempotency-Key": "k/0"})
        assert single.json()["created"] is True
        assert len(await ids(client)) == 2


async def test_rejected_batch_does_not_use_its_key(api: ApiServer) -> None:
    async with api.client("operator", queues=["mail"]) as client:
        headers = {"Idempotency-Key": "b"}
        refused = await client.post("/v1/jobs/batch", json={"jobs": [{"kind": "a"}]}, headers=headers)
        assert refused.json()["refused"] == 1
        repaired = await client.post("/v1/jobs/batch", json={"jobs": [{"kind": "a", "queue": "mail"}]}, headers=headers)
        assert repaired.json()["accepted"] == 1


async def test_long_poll_returns_when_the_job_ends(api: ApiServer) -> None:
    async with api.client("viewer") as viewer, api.client("operator") as client:
        job_id = await submit_job(client)
        early = await viewer.get(f"/v1/jobs/{job_id}", params={"wait": 0.01})
        assert (early.json()["state"], early.headers["retry-after"]) == ("PENDING", "1")
        waiting = asyncio.ensure_future(viewer.get(f"/v1/jobs/{job_id}", params={"wait": 60}))
        await settle(api.store, await claim_one(api.store), Done(b"7"))
        response = await asyncio.wait_for(waiting, 60)
        assert (response.json()["state"], response.json()["result"]) == ("COMPLETED", 7)
        assert "retry-after" not in response.headers


async def test_long_poll_rejects_a_revoked_token(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_end, began = api.store.wait_for_end, asyncio.Event()

    async def watched(job_id: str, timeout_seconds: float) -> Job | None:
        began.set()
        return await wait_for_end(job_id, timeout_seconds)

    monkeypatch.setattr(api.store, "wait_for_end", watched)
    async with api.client("operator") as client, api.client("viewer") as viewer:
        job_id = await submit_job(client)
        [info] = [info for info in await api.tokens.list() if info.role == "viewer"]
        waiting = asyncio.ensure_future(viewer.get(f"/v1/jobs/{job_id}", params={"wait": 60}))
        await asyncio.wait_for(began.wait(), 60)
        await api.tokens.revoke(info.id)
        await settle(api.store, await claim_one(api.store), Done(b"7"))
        assert (await asyncio.wait_for(waiting, 60)).status_code == 401


async def test_open_long_polls_are_limited_per_token(api: ApiServer) -> None:
    api.dependencies.open_requests = OpenRequestLimit(2)
    async with api.client("operator") as client, api.client("viewer") as viewer:
        job_id = await submit_job(client)
        path = f"/v1/jobs/{job_id}"
        waiting = [asyncio.ensure_future(client.get(path, params={"wait": 60})) for _ in range(2)]
        await eventually(lambda: api.dependencies.open_requests.total == 2)
        refused = await client.get(path, params={"wait": 60})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert (await client.get(path)).status_code == 200
        assert (await viewer.get(path, params={"wait": 0.01})).status_code == 200
        await settle(api.store, await claim_one(api.store), Done(b"7"))
        assert [response.status_code for response in await asyncio.gather(*waiting)] == [200, 200]
        assert api.dependencies.open_requests.total == 0


async def test_long_poll_ends_when_the_server_stops(api: ApiServer) -> None:
    async with api.client("operator") as client:
        job_id = await submit_job(client)
        waiting = asyncio.ensure_future(client.get(f"/v1/jobs/{job_id}", params={"wait": 60}))
        api.dependencies.draining.set()
        response = await asyncio.wait_for(waiting, 60)
        assert (response.json()["state"], response.headers["retry-after"]) == ("PENDING", "1")


async def test_explain(api: ApiServer) -> None:
    await api.store.configure("default", QueueSettings(max_per_group=1))
    async with api.client("operator") as client, api.client("submitter") as submitter:
        running = await submit_job(client, group="acme")
        await claim_one(api.store)
        job_id = await submit_job(submitter, group="acme")
        body = (await client.get(f"/v1/jobs/{job_id}/explain")).json()
        assert "group_limit_reached" in [cause["code"] for cause in body["causes"]]
        assert running in body["sentence"]
        hidden = await submitter.get(f"/v1/jobs/{job_id}/explain")
        assert "group_limit_reached" in hidden.text
        assert running not in hidden.text


async def test_submitters_create_no_queues(api: ApiServer) -> None:
    await api.store.configure("mail", QueueSettings())
    async with api.client("submitter") as client, api.client("operator") as operator:
        for queue in ("default", "mail"):
            await submit_job(client, queue=queue)
        refused = await client.post("/v1/jobs", json={"kind": "mail", "queue": "new"})
        assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
        assert [error["pointer"] for error in refused.json()["errors"]] == ["/queue"]
        jobs = [{"kind": "mail", "queue": queue} for queue in ("mail", "new", "newer")]
        batch = (await client.post("/v1/jobs/batch", json={"jobs": jobs})).json()
        assert [item["status"] for item in batch["items"]] == [202, 403, 403]
        assert batch["items"][1]["errors"][0]["pointer"] == "/jobs/1/queue"
        assert [info.name for info in await api.store.queues()] == ["default", "mail"]
        await submit_job(operator, queue="new")
        await submit_job(client, queue="new")
        await operator.post("/v1/jobs/actions", json={"action": "delete", "filter": {"queue": "new"}})
        assert (await operator.delete("/v1/queues/new")).status_code == 204
        assert (await client.post("/v1/jobs", json={"kind": "mail", "queue": "new"})).status_code == 403
    async with api.client("submitter", queues=["own"]) as client:
        await submit_job(client, queue="own")


async def test_submitters_create_queues_where_that_is_allowed() -> None:
    allowed = ServerSection(submitters_create_queues=True)
    async with api_server(allowed) as api, api.client("submitter") as client:
        await submit_job(client, queue="new")
