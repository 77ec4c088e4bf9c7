"""Requests that are expensive to handle do not hold up the event loop: CPU time of each callback, not wall time."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from tests.server.support import api_server, ids, serving

from jobyard.domain.ids import new_id
from jobyard.domain.job import NewJob
from jobyard.domain.outcome import Failed
from jobyard.domain.state import Settlement, judge
from jobyard.executors.workflow.records import WorkflowRecord, entry_of
from jobyard.operations.chart_log import RESOLUTIONS, ChartEntry, ChartRange, Gauge, QueueTally, longest_queues
from jobyard.ports.admin_store import Filter, Page
from jobyard.ports.workflow_store import Checkpoint
from jobyard.server.routes import events, execute, health, jobs, submit
from jobyard.server.visible_jobs import FIRST_STEP, MAX_PAGE_BYTES, job_bytes

# 50 ms is the aim; a loaded machine with cold caches takes longer for the same work. Before there were limits, these
# requests took between 0.2 and 30 seconds.
MAX_SECONDS = 0.2
SIZE = 2_000_000


def filled(unit: bytes, head: bytes = b'{"kind":"a","payload":{"x":[', tail: bytes = b"]}}", size: int = SIZE) -> bytes:
    """A body of the given size that repeats one value."""
    return head + b",".join([unit] * (size // (len(unit) + 1))) + tail


BODIES = {
    "numbers": filled(b"1"),
    "floats": filled(b"1.2345e-5"),
    "most floats": filled(b"1.2345e-5", size=1_040_000),
    "long numbers": filled(b"1" * 4000),
    "lists": filled(b"[]"),
    "most lists": filled(b"[]", size=3 * 65_000),
    "objects": filled(b'{"a":1}'),
    "names": b'{"kind":"a","payload":{' + b",".join(b'"%x":1' % number for number in range(170_000)) + b"}}",
    "most names": b'{"kind":"a","payload":{' + b",".join(b'"%x":1' % number for number in range(65_000)) + b"}}",
    "nulls": filled(b"null"),
    "most nulls": filled(b"null", size=5 * 130_000),
    "strings": filled(b'""'),
    "escapes": filled(b'\\"', b'{"kind":"a","payload":{"x":"', b'"}}'),
    "surrogates": filled(b"\\ud83d\\ude00", b'{"kind":"a","payload":{"x":"', b'\\ud800"}}'),
    "one name": b'{"kind":"a","' + b"x" * SIZE + b'":1}',
    "brackets": b'{"kind":"a","payload":{"x":' + b"[" * SIZE,
    "batch": filled(b'{"kind":"a","payload":{"a":1,"b":[1,2,3]}}', b'{"jobs":[', b"]}", 1000 * 43),
}


# Python reads the NaN and forgets it because the name comes twice, so that all values below a long path are searched.
HEAD, TAIL = b'{"language":"python","args":NaN,"args":' + b"[" * 200, b"]" * 200 + b"}"
UNITS = (b"1", b"[]", b'{"a":"b"}')
PROGRAMS = {f"{size} bytes of {unit!r}": filled(unit, HEAD, TAIL, size) for size in (15_500, SIZE) for unit in UNITS}

FILES = b'{"language":"python","source_code":"1","files":['
for names in ([b"a/" * 10_000 + b"a"], [b"a" * 1_900_000], [b"a/%d" % number for number in range(20_000)]):
    named = b",".join(b'{"name":"%s","content":""}' % name for name in names)
    PROGRAMS[f"{len(names)} file names of {len(names[0])} bytes"] = FILES + named + b"]}"
PROGRAMS["names of results"] = filled(b'"a/b"', b'{"language":"python","source_code":"1","collect":[', b"]}", 700_000)


@pytest.fixture
def longest(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The CPU seconds of the longest callback so far."""
    found = [0.0]
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        started = time.thread_time()
        run(handle)
        found[0] = max(found[0], time.thread_time() - started)

    gc.collect()
    gc.freeze()  # a full collection would look at every object of the test run
    monkeypatch.setattr(asyncio.Handle, "_run", timed)
    yield found
    gc.unfreeze()


async def exchange(url: str, *pieces: bytes) -> bytes:
    """Send the pieces in one go, and return what the server sends until it closes."""
    reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)

    async def send() -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    sending = asyncio.ensure_future(send())
    try:
        return await asyncio.wait_for(reader.read(-1), 60)
    except ConnectionError:
        return b""  # rejected before the body was read: a reset may overtake the response
    finally:
        await asyncio.wait([sending], timeout=0)
        sending.cancel()
        writer.close()
        await asyncio.gather(sending, return_exceptions=True)


def post(path: str, body: bytes, token: str, *headers: bytes) -> bytes:
    head = [b"POST " + path.encode() + b" HTTP/1.1", b"Host: x", b"Connection: close", *headers]
    head += [b"Authorization: Bearer " + token.encode(), b"Content-Type: application/json"]
    head += [b"Content-Length: %d" % len(body)]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


async def test_no_request_holds_up_the_event_loop(longest: list[float]) -> None:
    async with api_server(routes=[submit.ROUTES, execute.ROUTES, health.ROUTES]) as api, serving(api.app) as url:
        token = await api.token("submitter")
        took: dict[str, float] = {}

        async def measure(name: str, request: bytes) -> bytes:
            longest[0] = 0.0
            answer = await exchange(url, request)
            took[name] = longest[0]
            assert answer == b"" or answer.startswith((b"HTTP/1.1 2", b"HTTP/1.1 4")), (name, answer)
            return answer

        for name, body in BODIES.items():
            path = "/v1/jobs/batch" if name == "batch" else "/v1/jobs"
            await measure(name, post(path, body, token, b"Idempotency-Key: " + name.encode()))
        for name, body in PROGRAMS.items():
            await measure(name, post("/execute", body, token))
        chunked = post("/v1/jobs", b"", token).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        await measure("chunks", chunked + b"1\r\n1\r\n" * 100_000 + b"0\r\n\r\n")
        probes = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" * 2000
        answer = await measure("pipelined", probes + b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert answer.count(b"HTTP/1.1 200 ") == 2001
        assert max(took.values()) < MAX_SECONDS, sorted(took.items(), key=lambda each: -each[1])[:5]


async def test_pages_of_large_jobs_are_short() -> None:
    """A page ends early when its jobs are large; the next one goes on after it, and none is missed."""
    async with api_server(routes=[submit.ROUTES, jobs.ROUTES, events.ROUTES]) as api, api.client("admin") as client:
        sent: list[str] = []
        for number in range(60):
            size = 900_000 if number % 20 == 5 else 60_000 if number % 2 else 10
            answer = await client.post("/v1/jobs", json={"kind": "a", "payload": {"x": "x" * size}})
            sent.append(answer.json()["id"])
        assert await ids(client, page_size=1000) == sent[::-1]
        first: dict[str, Any] = {"page_size": 1000}
        while True:
            page = await client.get("/v1/jobs", params=first)
            assert len(page.content) < MAX_PAGE_BYTES + 1_100_000
            if "next_page_token" not in page.json():
                break
            first["page_token"] = page.json()["next_page_token"]
        async with serving(api.app) as url:
            reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
            token = await api.token("viewer")
            writer.write(f"GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
            await reader.readuntil(b"data: ")
            reader._limit = 1 << 30  # type: ignore[attr-defined]  # the whole snapshot is one line
            snapshot = msgspec.json.decode(await reader.readline())["data"]
            assert 0 < len(msgspec.json.encode(snapshot["jobs"])) < MAX_PAGE_BYTES + 1_100_000
            writer.close()
            api.dependencies.draining.set()


# Many names that look like secrets: each must be hidden from a viewer, wherever the document is searched or shown.
SECRETS = msgspec.json.encode({"x": [{"token": 1, "b": []} for _ in range(21_000)]})
TEXT = msgspec.json.encode({"x": "y" * 900_000})


async def test_what_a_viewer_may_not_see_is_not_hidden_on_the_event_loop(longest: list[float]) -> None:
    async with api_server() as api, api.client("viewer") as viewer:
        await api.store.insert([NewJob(id=new_id(), kind="a", payload=SECRETS) for _ in range(20)])
        [job_id, *_] = await ids(viewer)
        for path in ("/v1/jobs", "/v1/jobs?text=z", "/v1/jobs/counts?text=z", f"/v1/jobs/{job_id}"):
            longest[0] = 0.0
            assert (await viewer.get(path)).status_code == 200
            assert longest[0] < MAX_SECONDS, path


async def test_large_jobs_are_read_in_small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    async with api_server() as api, api.client("admin") as client:
        for _ in range(4):
            await api.store.insert([NewJob(id=new_id(), kind="a", payload=TEXT) for _ in range(25)])
        leases = (await api.store.exchange("w", [], ("default",), 60, 600.0)).leases
        failed = [
            Settlement(lease.key, judge(lease, Failed(message="no", retry=False), worker="w")) for lease in leases[:30]
        ]
        await api.store.exchange("w", failed, ("default",), 0, 600.0)
        largest = 0
        find = api.store.find

        async def measured(where: Filter, limit: int = 50, cursor: str | None = None) -> Page:
            nonlocal largest
            page = await find(where, limit, cursor)
            largest = max(largest, sum(map(job_bytes, page.jobs)))
            return page

        monkeypatch.setattr(api.store, "find", measured)
        where = {"filter": {"kind": "a", "state": ["PENDING"]}}
        paths = ("/v1/jobs", "/v1/jobs/counts?kind=a", "/v1/dead-letters/groups", "/v1/workers?jobs=true")
        for path in (*paths, "/api/v2/jobs/running"):
            assert (await client.get(path)).status_code == 200
        done = await client.post("/v1/jobs/actions", json={"action": "prioritise", "priority": 1, **where})
        assert done.json()["changed"] == 40
        assert 0 < largest <= FIRST_STEP * 1_000_000


async def test_charts_of_many_queues_do_not_hold_up_the_event_loop(longest: list[float]) -> None:
    queues = [f"q{number}" for number in range(2000)]
    async with api_server() as api, api.client("admin") as admin:
        await api.store.insert([NewJob(id=new_id(), kind="a", queue=name) for name in queues])
        counts = dict.fromkeys(range(12), 3)
        now = await api.store.now()
        for chart_range in (ChartRange.HOUR, ChartRange.DAY):
            resolution = RESOLUTIONS[chart_range]
            for number in range(300):
                names = queues[number % 10 * 200 :][:200]
                entry = ChartEntry(
                    interval=resolution.interval_of(now - (1 + number // 10) * resolution.interval_ms),
                    tallies={name: QueueTally(5, 5, 1, counts, counts) for name in names},
                    gauges={name: Gauge(3, 4) for name in names},
                )
                await api.store.append(resolution.log, msgspec.json.encode(entry))
        async with api.client("operator", queues=tuple(queues[:1000])) as restricted:
            for client in (admin, restricted):
                for path in ("/v1/charts?range=24h", "/v1/charts?range=1h", "/v1/overview"):
                    longest[0] = 0.0
                    assert (await client.get(path)).status_code == 200
                    assert longest[0] < MAX_SECONDS, path
        overview = (await admin.get("/v1/overview")).json()
        assert overview["failed_last_hour"] == 200 * 300


async def test_a_chart_forgets_what_is_too_old() -> None:
    async with api_server() as api:
        resolution, now = RESOLUTIONS[ChartRange.HOUR], await api.store.now()
        for ago, name in ((1, "a"), (2, "a"), (2, "b")):
            entry = ChartEntry(
                interval=resolution.interval_of(now - ago * resolution.interval_ms),
                tallies={name: QueueTally(1, 2, 1, {3: 4}, {5: 6})},
            )
            await api.store.append(resolution.log, msgspec.json.encode(entry))
        history = await api.dependencies.charts.history(ChartRange.HOUR)
        assert (history.total().finished, history.total(["a"]).waits, history.of_queue("b").finished) == (6, {3: 8}, 2)
        oldest = min(history.intervals)
        await history.refresh(oldest + resolution.kept_ms + 1)
        assert (history.total().finished, history.of_queue("a").runs, history.of_queue("b").finished) == (2, {5: 6}, 0)


def test_gauges_of_many_queues_are_summed_up() -> None:
    gauges = longest_queues({f"q{number}": Gauge(number, 1) for number in range(1000)})
    assert len(gauges) == 201
    assert (sum(each.waiting for each in gauges.values()), sum(each.running for each in gauges.values())) == (
        sum(range(1000)),
        1000,
    )
    assert longest_queues({"a": Gauge(1, 2)}) == {"a": Gauge(1, 2)}


@pytest.mark.parametrize(("size", "limit", "pages"), [(250_000, 1000, 3), (10, 1000, 1), (10, 7, 4), (250_000, 1, 25)])
async def test_a_page_of_a_history_with_large_results_ends_early(size: int, limit: int, pages: int) -> None:
    async with api_server() as api, api.client("operator") as client:
        await api.store.insert([NewJob(id="flow", kind="a", is_workflow=True)])
        [lease] = (await api.store.exchange("w", [], ("default",), 1, 60.0)).leases
        result = msgspec.Raw(msgspec.json.encode("x" * size))
        names = [f"s{number}" for number in range(25)]
        entries = tuple(entry_of(name, WorkflowRecord(kind="step", name=name, result=result)) for name in names)
        await api.store.checkpoint([Checkpoint(key=lease.key, entries=entries)])
        found: list[str] = []
        params: dict[str, Any] = {"results": True, "page_size": limit}
        for number in range(1, pages + 1):
            page = (await client.get("/v1/jobs/flow/history", params=params)).json()
            found += [each["name"] for each in page["items"]]
            assert ("next_page_token" in page) == (number < pages)
            params["page_token"] = page.get("next_page_token")
        assert found == names
