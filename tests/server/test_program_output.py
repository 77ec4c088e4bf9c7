"""Live output of programs, and cancellation on disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import msgspec
import pytest
from tests.server.program_support import body, programs, running
from tests.server.support import ApiServer, serving
from tests.support import eventually

from jobyard.domain.job import State
from jobyard.operations.audit_log import Audit
from jobyard.server.routes.program_output import DISCONNECTED, SentOutput


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with programs() as api:
        yield api


async def events(response: httpx.Response) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    name = ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield name, msgspec.json.decode(line[6:])


async def test_output_is_streamed_and_completed_by_the_result(api: ApiServer, tmp_path: Path) -> None:
    async with serving(api.app) as url, running(api, tmp_path), api.client("submitter") as near:
        headers = dict(near.headers)
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
            lines = ("bytes c3", "sleep 0.3", "bytes a9", "err oops", "sleep 2", "out last")
            job_id = (await client.post("/execute", json=body(*lines))).json()["job_id"]
            heard: list[tuple[str, Any]] = []
            status_when_first_heard = ""
            async with client.stream("GET", f"/jobs/{job_id}/output") as response:
                async for name, data in events(response):
                    if not heard:
                        status_when_first_heard = (await client.get(f"/jobs/{job_id}")).json()["status"]
                    heard.append((name, data))
    assert status_when_first_heard == "RUNNING"
    assert [name for name, _ in heard] == ["stdout", "stderr", "stdout", "finished"]
    assert [data.get("text") for _, data in heard[:3]] == ["é", "oops\n", "last\n"]
    assert heard[-1][1]["result"]["verdict"] == "OK"


def test_output_of_another_run_is_restarted() -> None:
    texts = SentOutput()
    assert texts.begin(5) == b""
    assert texts.add(0, 1, b"hel") == b'event: stdout\ndata: {"text":"hel"}\n\n'
    same = b"".join(texts.rest({"stdout": "hello", "stderr": ""}))
    assert same == b'event: stdout\ndata: {"text":"lo"}\n\n'
    again = SentOutput()
    again.begin(5)
    again.add(0, 1, b"hel")
    other = b"".join(again.rest({"stdout": "bye", "stderr": ""}))
    assert other == b'event: restart\ndata: {}\n\nevent: stdout\ndata: {"text":"bye"}\n\n'
    assert again.begin(6) == b"event: restart\ndata: {}\n\n"
    cut = SentOutput()
    cut.add(0, 1, "éé".encode()[:3])
    assert b"".join(cut.rest({"stdout": "é", "stderr": ""})) == b""


async def test_disconnect_can_cancel_the_run(api: ApiServer, tmp_path: Path) -> None:
    async with serving(api.app) as url, running(api, tmp_path) as fake, api.client("submitter") as near:
        headers = dict(near.headers)
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
            ids = []
            for cancels, seconds in (("false", 3), ("true", 20)):
                given = body("out a", f"sleep {seconds}", limits={"time_seconds": 20})
                job_id = (await client.post("/execute", json=given)).json()["job_id"]
                ids.append(job_id)
                params = {"cancel_on_leave": cancels}
                async with client.stream("GET", f"/jobs/{job_id}/output", params=params) as response:
                    async for _ in events(response):
                        break
            await eventually(lambda: fake.cancelled)
            await eventually(lambda: ended(api, ids[1]))
            [entry] = await eventually(lambda: Audit(api.store).read())
            me = (await client.get("/v1/me")).json()["id"]
            assert (entry.principal, entry.action, entry.target) == (me, "job.cancel", ids[1])
    stays, goes = [await api.store.get(each) for each in ids]
    assert stays is not None
    assert goes is not None
    assert (goes.state, goes.reason) == (State.CANCELLED, DISCONNECTED)
    assert stays.state is not State.CANCELLED


async def ended(api: ApiServer, job_id: str) -> bool:
    job = await api.store.get(job_id)
    return job is not None and job.state.is_final


async def test_stream_of_a_finished_run_ends_at_once(api: ApiServer, tmp_path: Path) -> None:
    async with api.client("submitter") as client, running(api, tmp_path):
        done = (await client.post("/execute/batch", params={"wait": 5}, json=body("cat", inputs=["a", "b"]))).json()
        async with client.stream("GET", f"/jobs/{done['job_id']}/output") as response:
            heard = [each async for each in events(response)]
    texts = [(data["index"], data["text"]) for name, data in heard if name == "stdout"]
    assert texts == [(0, "a"), (1, "b")]
    assert heard[-1] == ("finished", done)


async def test_viewer_can_follow_but_not_cancel_on_leave(api: ApiServer) -> None:
    async with api.client("submitter") as client, api.client("viewer") as viewer:
        job_id = (await client.post("/execute", json=body())).json()["job_id"]
        response = await viewer.get(f"/jobs/{job_id}/output", params={"cancel_on_leave": "true"})
        assert (response.status_code, response.json()["code"]) == (403, "not_allowed")
        await client.post(f"/v1/jobs/{job_id}/cancel", json={})
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://other.test"}):
            asked = {"cancel_on_leave": "true"}
            response = await client.get(f"/jobs/{job_id}/output", params=asked, headers=headers)
            assert (response.status_code, response.json()["code"]) == (403, "cross_site")
        followed = await viewer.get(f"/jobs/{job_id}/output")
        assert "event: finished" in followed.text
        await asyncio.sleep(0)
