"""Live events over a real connection: a snapshot, then the changes in scope."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import httpx2 as httpx
import pytest
from tests.server.sse import listening
from tests.server.support import ApiServer, serving
from tests.support import Watched, eventually

from jobyard import Context, Jobyard
from jobyard.domain.job import NewJob, State
from jobyard.domain.tags import SUBMITTED_BY
from jobyard.errors import StoreUnavailable
from jobyard.live_events.event import COLLECTION, KEPT_SECONDS, LISTENERS, LiveEvent, LiveEventType, event_key, pack
from jobyard.operations.commands import Commands
from jobyard.ports.admin_store import Action
from jobyard.ports.clock import SystemClock
from jobyard.server.rate_limit import OpenRequestLimit
from jobyard.server.routes import events, login, tokens
from jobyard.server.routes.table import ALL_ROUTES
from jobyard.server.streaming import broadcaster
from jobyard.stores.memory import MemoryStore

_counter = count()


@pytest.fixture
async def store() -> Watched:
    return Watched(MemoryStore(SystemClock()))


@pytest.fixture
async def yard(store: Watched) -> AsyncIterator[Jobyard]:
    yard = Jobyard(store=store.as_store())

    @yard.job()
    async def slow(ctx: Context) -> str:
        for step in range(1, 4):
            await ctx.progress(step * 25, f"step {step}")
            await asyncio.sleep(0.12)
        return "done"

    @yard.job()
    async def quick(ctx: Context) -> str:
        return "done"

    async with yard:
        yield yard


@pytest.fixture
async def api(store: Watched, yard: Jobyard) -> ApiServer:
    return ApiServer(store.as_store(), [events.ROUTES, tokens.ROUTES, login.ROUTES])


@pytest.fixture
async def server(api: ApiServer) -> AsyncIterator[str]:
    async with serving(api.app) as url:
        yield url
        api.dependencies.draining.set()


async def client(api: ApiServer, url: str, role: str = "viewer", **scope: Any) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {await api.token(role, **scope)}"}
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=60)


async def publish(api: ApiServer, *hints: LiveEvent) -> None:
    """As a worker does it."""
    key = event_key(await api.store.now(), "w1", next(_counter))
    await api.store.put(COLLECTION, key, pack(hints), expire_seconds=KEPT_SECONDS)


def progress(job_id: str, percent: float, **more: Any) -> LiveEvent:
    fields = {"kind": "slow", "queue": "default", "state": State.RUNNING, "attempt": 1, **more}
    return LiveEvent(type=LiveEventType.PROGRESS, job_id=job_id, percent=percent, **fields)


async def test_job_stream_starts_with_a_snapshot_and_follows_to_the_end(
    api: ApiServer, server: str, yard: Jobyard
) -> None:
    handle = await yard.enqueue("slow")
    async with await client(api, server) as http, listening(http, f"/v1/jobs/{handle.id}/events") as reader:
        await eventually(lambda: reader.first("snapshot"))
        assert reader.answer.headers["content-type"].startswith("text/event-stream")
        assert reader.answer.headers["x-accel-buffering"] == "no"
        assert reader.lines[0].startswith("retry: ")
        assert reader.events[0]["data"]["job"]["state"] == "PENDING"
        async with yard.worker():
            await eventually(lambda: reader.first("job.completed"))
        assert reader.types()[0] == "snapshot"
        assert reader.types()[1] == "job.started"
        seen = [event["data"]["progress"]["percent"] for event in reader.events if "progress" in event["type"]]
        assert seen == [25, 50, 75]
        assert reader.ids == sorted(set(reader.ids))
        event = reader.first("job.completed")
        assert event is not None
        assert event["subject"] == event["data"]["job_id"] == handle.id
        assert event["specversion"] == "1.0"
        assert event["data"]["state"] == "COMPLETED"
        assert event["id"] == str(reader.ids[-1])


async def test_stream_of_all_jobs_includes_jobs_watched_by_others(api: ApiServer, server: str, yard: Jobyard) -> None:
    """Events that the stream of one job already has must still reach other streams."""
    handle = await yard.enqueue("quick")
    await api.store.exchange("w", [], ["default"], 1, 60)
    async with await client(api, server) as http, listening(http, "/v1/events") as whole:
        await eventually(lambda: whole.first("snapshot"))
        async with listening(http, f"/v1/jobs/{handle.id}/events") as one:
            await eventually(lambda: one.first("snapshot"))
            running: dict[str, Any] = {"job_id": handle.id, "queue": "default", "state": State.RUNNING, "attempt": 1}
            await publish(
                api,
                LiveEvent(type=LiveEventType.STARTED, **running),
                progress(handle.id, 10),
                progress("another", 1),
                LiveEvent(type=LiveEventType.RESYNC),
            )
            for reader in (whole, one):
                await eventually(lambda reader=reader: reader.first("resync"))  # type: ignore[misc]
                await eventually(lambda reader=reader: reader.first("job.progress"))  # type: ignore[misc]
            assert whole.types().count("job.started") == 1
            assert one.types().count("job.started") == 0  # it is in the snapshot
            assert (whole.types().count("job.progress"), one.types().count("job.progress")) == (2, 1)
            for reader in (whole, one):
                assert reader.ids == sorted(set(reader.ids))


async def test_progress_does_not_wait_for_a_slow_poll(
    api: ApiServer, server: str, yard: Jobyard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcaster, "SLOW_POLL_SECONDS", 3600.0)
    handle = await yard.enqueue("slow")
    async with await client(api, server) as http, listening(http, "/v1/events") as reader:
        await eventually(lambda: reader.first("snapshot"))
        for percent in range(1, 8):
            await publish(api, progress(handle.id, percent))
            await eventually(lambda percent=percent: reader.first(  # type: ignore[misc]
                "job.progress", lambda data: data["progress"]["percent"] == percent))  # fmt: skip


async def test_reconnect_starts_with_a_snapshot(api: ApiServer, server: str, yard: Jobyard) -> None:
    handle = await yard.enqueue("quick")
    async with await client(api, server) as http:
        async with listening(http, f"/v1/jobs/{handle.id}/events") as reader:
            await eventually(lambda: reader.first("snapshot"))
            last = reader.ids[-1]
        async with yard.worker():
            await handle.result(60)
        again = {"Last-Event-ID": str(last)}
        async with listening(http, f"/v1/jobs/{handle.id}/events", headers=again) as reader:
            await eventually(lambda: reader.first("snapshot"))
            assert reader.events[0]["data"]["job"]["state"] == "COMPLETED"
            assert reader.ids[0] > last


async def test_changes_during_a_lost_connection_are_in_the_next_snapshot(
    api: ApiServer, server: str, yard: Jobyard
) -> None:
    """Also while no client listens, when no events are written, and whatever the id of the last event is."""
    ended, waiting = await yard.enqueue("quick"), await yard.enqueue("quick", delay=3600)
    async with await client(api, server) as http:
        async with listening(http, "/v1/events") as reader:
            await eventually(lambda: reader.first("snapshot"))
            last = reader.ids[-1]
        await eventually(lambda: not len(api.dependencies.broadcaster))
        async with yard.worker():
            await ended.result(60)
        await Commands(yard.store).change_one(Action.CANCEL, waiting.id)
        new = await yard.enqueue("quick", delay=3600)
        for known in (str(last), str(last + 1_000_000), "unknown"):
            async with listening(http, "/v1/events", headers={"Last-Event-ID": known}) as reader:
                await eventually(lambda reader=reader: reader.first("snapshot"))  # type: ignore[misc]
                data = reader.events[0]["data"]
                states = {job["id"]: job["state"] for job in data["jobs"]}
                assert states == {ended.id: "COMPLETED", waiting.id: "CANCELLED", new.id: "PENDING"}
                [queue] = data["queues"]
                assert (queue["completed"], queue["cancelled"], queue["delayed"]) == (1, 1, 1)
                assert reader.ids[0] > last


async def test_snapshot_has_queues_and_newest_jobs(api: ApiServer, server: str, yard: Jobyard) -> None:
    handle = await yard.enqueue("quick", queue="builds")
    async with await client(api, server) as http, listening(http, "/v1/events") as reader:
        await eventually(lambda: reader.first("snapshot"))
        shown = reader.events[0]["data"]
        assert [job["id"] for job in shown["jobs"]] == [handle.id]
        assert [(queue["name"], queue["waiting"]) for queue in shown["queues"]] == [("builds", 1)]
        await yard.enqueue("quick", queue="builds")
        changed = await eventually(lambda: reader.first("queue.changed", lambda data: data["waiting"] == 2))
        assert changed["subject"] == "builds"


@pytest.mark.parametrize("query, passes", [
    ("", True), ("?queue=default", True), ("?queue=other", False), ("?group=g", True), ("?group=h", False),
    ("?kind=slow", True), ("?kind=quick", False), ("?type=progress", True), ("?type=completed", False),
    ("?type=completed&type=progress", True), ("?queue=default&kind=slow&group=g&type=progress", True),
])  # fmt: skip
async def test_filters(api: ApiServer, server: str, query: str, passes: bool) -> None:
    async with await client(api, server) as http, listening(http, f"/v1/events{query}") as reader:
        await eventually(lambda: reader.first("snapshot"))
        await publish(api, progress("j1", 1, group="g"), LiveEvent(type=LiveEventType.RESYNC))
        await eventually(lambda: reader.first("resync"))
        assert (reader.first("job.progress") is not None) is passes


@pytest.mark.parametrize("bad", ["?typo=1", "?type=explosion", "?queue=", "?queue=a&queue=b"])
async def test_invalid_filter_is_rejected(api: ApiServer, server: str, bad: str) -> None:
    async with await client(api, server) as http:
        assert (await http.get(f"/v1/events{bad}")).status_code == 422


async def test_events_out_of_scope_are_hidden(api: ApiServer, server: str, yard: Jobyard) -> None:
    mine = await yard.enqueue("quick", queue="builds", group="acme")
    other = await yard.enqueue("quick", queue="builds", group="evil")
    elsewhere = await yard.enqueue("quick", queue="mail", group="acme")
    async with (
        await client(api, server, queues=["builds"], groups=["acme"]) as http,
        listening(http, "/v1/events") as reader,
    ):
        await eventually(lambda: reader.first("snapshot"))
        assert [job["id"] for job in reader.events[0]["data"]["jobs"]] == [mine.id]
        assert reader.events[0]["data"]["queues"] == [], "their counts include jobs of other groups"
        await publish(
            api,
            progress(other.id, 1, queue="builds", group="evil"),
            progress(elsewhere.id, 2, queue="mail", group="acme"),
            progress(mine.id, 3, queue="builds", group="acme"),
        )
        await eventually(lambda: reader.first("job.progress"))
        assert [event["subject"] for event in reader.events if "progress" in event["type"]] == [mine.id]
        for hidden in (other, elsewhere):
            assert (await http.get(f"/v1/jobs/{hidden.id}/events")).status_code == 404
            assert (await http.get(f"/v1/events?job={hidden.id}")).status_code == 404


async def test_submitter_gets_events_of_its_own_jobs_only(api: ApiServer, server: str, yard: Jobyard) -> None:
    info, text = await api.tokens.create("ci", "submitter")
    mine = await yard.enqueue("quick", tags=[f"{SUBMITTED_BY}{info.id}"])
    other = await yard.enqueue("quick", tags=[f"{SUBMITTED_BY}000000000000"])
    nobodys = await yard.enqueue("quick")
    headers = {"Authorization": f"Bearer {text}"}
    async with (
        httpx.AsyncClient(base_url=server, headers=headers, timeout=60) as http,
        listening(http, "/v1/events") as reader,
    ):
        await eventually(lambda: reader.first("snapshot"))
        assert [job["id"] for job in reader.events[0]["data"]["jobs"]] == [mine.id]
        await publish(api, progress(other.id, 1), progress(nobodys.id, 2), progress("gone", 3), progress(mine.id, 4))
        await eventually(lambda: reader.first("job.progress"))
        assert [event["subject"] for event in reader.events if "progress" in event["type"]] == [mine.id]
        assert (await http.get(f"/v1/jobs/{other.id}/events")).status_code == 404
        async with listening(http, f"/v1/jobs/{mine.id}/events") as own:
            await eventually(lambda: own.first("snapshot"))


async def test_submitted_job_is_published(api: ApiServer, server: str) -> None:
    async with await client(api, server) as http, listening(http, "/v1/events?type=enqueued") as reader:
        await eventually(lambda: reader.first("snapshot"))
        api.dependencies.enqueued(NewJob(id="j1", kind="mail", queue="q", group="g"))
        event = await eventually(lambda: reader.first("job.enqueued"))
        assert (event["subject"], event["data"]["queue"], event["data"]["state"]) == ("j1", "q", "PENDING")
        assert b'jobyard_jobs_enqueued_total{kind="mail",queue="q"} 1.0' in await api.dependencies.exporter.text()


async def test_actions_over_http_are_published(store: Watched) -> None:
    api = ApiServer(store.as_store(), ALL_ROUTES)
    async with serving(api.app) as url, await client(api, url, "operator") as http:
        async with listening(http, "/v1/events?type=enqueued&type=cancelled") as reader:
            await eventually(lambda: reader.first("snapshot"))
            made = await http.post("/v1/jobs", json={"kind": "mail", "delay_seconds": 500})
            job_id = made.json()["id"]
            await eventually(lambda: reader.first("job.enqueued", lambda data: data["job_id"] == job_id))
            assert (await http.post(f"/v1/jobs/{job_id}/cancel", json={"reason": "enough"})).status_code == 200
            event = await eventually(lambda: reader.first("job.cancelled"))
            assert (event["subject"], event["data"]["reason"]) == (job_id, "enough")
            assert (await http.post(f"/v1/jobs/{job_id}/retry")).status_code == 200
            await eventually(lambda: reader.types().count("job.enqueued") == 2)
            assert not reader.first("resync")
            await http.post("/v1/jobs/actions", json={"action": "cancel", "ids": [job_id]})
            await eventually(lambda: reader.first("resync"))
        api.dependencies.draining.set()


async def test_events_of_another_process(api: ApiServer, server: str, yard: Jobyard) -> None:
    """Events after the snapshot arrive, also for the first subscriber."""
    story = ["started", "progress", "progress", "progress", "completed"]
    async with await client(api, server) as http, yard.worker():
        for _ in range(3):  # each time as the first subscriber
            async with listening(http, "/v1/events") as reader:
                await eventually(lambda reader=reader: reader.first("snapshot"))  # type: ignore[misc]
                handle = await yard.enqueue("slow")
                await eventually(lambda reader=reader: reader.first("job.completed"))  # type: ignore[misc]
                mine = [event for event in reader.events if event.get("subject") == handle.id]
                assert [event["type"].split(".")[3] for event in mine] == story
            await eventually(lambda: api.dependencies.broadcaster.is_running is False)


async def test_head_request_returns_headers_only(api: ApiServer, server: str) -> None:
    async with await client(api, server) as http:
        response = await http.head("/v1/events", timeout=60)
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
    await eventually(lambda: len(api.dependencies.broadcaster) == 0)


async def test_stream_requires_a_token(server: str) -> None:
    async with httpx.AsyncClient(base_url=server, timeout=60) as http:
        assert (await http.get("/v1/events")).status_code == 401


async def test_stream_accepts_a_session_cookie(api: ApiServer, server: str) -> None:
    async with httpx.AsyncClient(base_url=server, timeout=60) as http:
        form = {"token": await api.token("viewer")}
        assert (await http.post("/login", data=form, headers={"Origin": server})).status_code == 303
        async with listening(http, "/v1/events") as reader:
            await eventually(lambda: reader.first("snapshot"))


async def test_stream_of_a_revoked_token_ends(api: ApiServer, server: str) -> None:
    async with await client(api, server) as http, listening(http, "/v1/events") as reader:
        await eventually(lambda: reader.first("snapshot"))
        for info in await api.tokens.list():
            await api.tokens.revoke(info.id)
        await eventually(lambda: reader.is_over)


async def test_deleted_job_sends_a_resync(api: ApiServer, server: str, yard: Jobyard) -> None:
    handle = await yard.enqueue("quick")
    async with await client(api, server) as http, listening(http, f"/v1/jobs/{handle.id}/events") as reader:
        await eventually(lambda: reader.first("snapshot"))
        await Commands(yard.store).change_one(Action.DELETE, handle.id)
        event = await eventually(lambda: reader.first("resync"))
        assert event["subject"] == handle.id


async def test_open_streams_are_limited_per_token(api: ApiServer, server: str) -> None:
    api.dependencies.open_requests = OpenRequestLimit(1)
    async with await client(api, server) as http, await client(api, server) as other:
        for _ in range(2):
            async with listening(http, "/v1/events") as reader:
                await eventually(lambda reader=reader: reader.first("snapshot"))  # type: ignore[misc]
                assert (await http.get("/v1/events")).status_code == 429
                async with listening(other, "/v1/events") as theirs:
                    await eventually(lambda theirs=theirs: theirs.first("snapshot"))  # type: ignore[misc]
            await eventually(lambda: api.dependencies.open_requests.total == 0)
        assert (await http.get("/v1/jobs/nobody/events")).status_code == 404
        assert api.dependencies.open_requests.total == 0


async def test_streams_end_when_the_server_drains(api: ApiServer, server: str) -> None:
    async with await client(api, server) as http, listening(http, "/v1/events") as reader:
        await eventually(lambda: reader.first("snapshot"))
        api.dependencies.draining.set()
        await eventually(lambda: reader.is_over)


async def test_streams_survive_a_store_outage_and_resync(api: ApiServer, server: str, store: Watched) -> None:
    async with await client(api, server) as http, listening(http, "/v1/events") as reader:
        await eventually(lambda: reader.first("snapshot"))
        store.failing = StoreUnavailable("gone")
        assert (await http.get("/v1/events")).status_code == 503
        await eventually(lambda: api.dependencies.broadcaster.is_store_away)
        store.failing = None
        await eventually(lambda: reader.first("resync"))
        assert not reader.is_over


async def test_store_is_not_read_without_subscribers(api: ApiServer, server: str, store: Watched) -> None:
    async with await client(api, server) as http:
        async with listening(http, "/v1/events") as reader:
            await eventually(lambda: reader.first("snapshot"))
            assert len(await api.store.fetch_all(LISTENERS)) == 1
        await eventually(lambda: len(api.dependencies.broadcaster) == 0)

        async def no_workers() -> bool:
            return await api.store.fetch_all(LISTENERS) == []

        await eventually(no_workers)
        await eventually(lambda: api.dependencies.broadcaster.is_running is False)
        before = store.calls["fetch_all"]
        await asyncio.sleep(0.2)  # four polling intervals, in which there must be no read
        assert store.calls["fetch_all"] == before
