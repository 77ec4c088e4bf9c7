"""Interactive programs over the API: input while they run, signals, and floods of both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2 as httpx
import pytest
from tests.sandbox.real_programs import Judge, judge
from tests.server.support import serving

from jobyard.executors.sandbox import live_input
from jobyard.ports.clock import SystemClock
from jobyard.sandbox.attacks.connection import DaemonConnection
from jobyard.sandbox.attacks.private_daemon import PrivateDaemon
from jobyard.sandbox.protocol import Limits, Output, RunFinished, RunInput, RunRequest, RunSignal, RunVerdict
from jobyard.stores.memory import MemoryStore

ECHO = "while True:\n    line = input('? ')\n    print('you said', line, flush=True)\n    if line == 'end': break"


@pytest.fixture
async def here(daemon: PrivateDaemon) -> AsyncIterator[Judge]:
    async with judge(daemon) as made:
        yield made


async def begin(here: Judge, source: str, **given: Any) -> str:
    body = {"language": "python", "source_code": source, "interactive": True, "limits": {"time_seconds": 30}, **given}
    response = await here.client.post("/execute", json=body)
    assert response.status_code == 202, response.text
    return str(response.json()["job_id"])


async def send(here: Judge, job_id: str, **body: Any) -> int:
    return (await here.client.post(f"/jobs/{job_id}/input", json=body)).status_code


async def end(here: Judge, job_id: str) -> dict[str, Any]:
    body: dict[str, Any] = (await here.client.get(f"/jobs/{job_id}", params={"wait": 60})).json()
    assert body["status"] == "COMPLETED", body
    return dict(body["result"])


async def test_conversation(here: Judge) -> None:
    job_id = await begin(here, ECHO, input="first\n")
    assert await send(here, job_id, text="second\n") == 202
    assert await send(here, job_id, base64="ZW5kCg==") == 202
    found = await end(here, job_id)
    assert found["stdout"] == "? you said first\n? you said second\n? you said end\n"
    assert await send(here, job_id, text="late") == 409
    assert not [each for each in await here.api.store.fetch_all(live_input.INPUT) if each.key.startswith(job_id)]


async def until_heard(here: Judge, job_id: str, text: str) -> None:
    """Follow the live output until this text is in it."""
    heard = ""
    async with (
        serving(here.api.app) as url,
        httpx.AsyncClient(base_url=url, headers=here.client.headers, timeout=60) as client,
        client.stream("GET", f"/jobs/{job_id}/output") as response,
    ):
        async for line in response.aiter_lines():
            heard += line
            if text in heard:
                return
    raise AssertionError(heard)


async def test_input_is_an_answer_to_live_output(here: Judge) -> None:
    """The client sends its second line when it has read the answer to the first."""
    job_id = await begin(here, ECHO, input="first\n")
    await until_heard(here, job_id, "you said first")
    assert await send(here, job_id, text="end\n") == 202
    assert "you said end" in (await end(here, job_id))["stdout"]


async def test_end_of_input(here: Judge) -> None:
    job_id = await begin(here, "import sys\nprint(len(sys.stdin.read()))")
    assert await send(here, job_id, text="abc") == 202
    assert await send(here, job_id, text="d", end=True) == 202
    assert await send(here, job_id, text="e") == 409
    assert (await end(here, job_id))["stdout"] == "4\n"


async def test_signals(here: Judge) -> None:
    source = """
import signal, sys
signal.signal(signal.SIGUSR1, lambda *_: print("user", flush=True))
print("ready", flush=True)
try:
    sys.stdin.read()
except KeyboardInterrupt:
    print("interrupted")
"""
    job_id = await begin(here, source)
    # A program that finds both signals at once handles the lower number first, so each waits for the last one's effect.
    for heard, name in (("ready", "USR1"), ("user", "INT")):
        await until_heard(here, job_id, heard)
        response = await here.client.post(f"/jobs/{job_id}/signal", json={"signal": name})
        assert response.status_code == 202, response.text
    found = await end(here, job_id)
    assert (found["stdout"], found["verdict"]) == ("ready\nuser\ninterrupted\n", "OK")


async def test_other_programs_take_no_input(here: Judge) -> None:
    response = await here.client.post("/execute", json={"language": "python", "source_code": "input()"})
    job_id = response.json()["job_id"]
    assert await send(here, job_id, text="x") == 409
    for bad in ({"signal": "STOP"}, {"signal": 9}, {"signal": ""}, {}):
        assert (await here.client.post(f"/jobs/{job_id}/signal", json=bad)).status_code == 422


async def test_input_of_another_client_is_refused(here: Judge) -> None:
    job_id = await begin(here, ECHO)
    async with here.api.client("submitter") as other:
        assert (await other.post(f"/jobs/{job_id}/input", json={"text": "x"})).status_code == 404
        assert (await other.post(f"/jobs/{job_id}/signal", json={"signal": "KILL"})).status_code == 404
    assert (await here.client.post(f"/jobs/{job_id}/signal", json={"signal": "KILL"})).status_code == 202
    assert (await end(here, job_id))["verdict"] == "SIGNALED"


async def test_flood_of_input_is_bounded(here: Judge) -> None:
    """The program reads nothing: what it may receive is limited as a whole, not by piece."""
    job_id = await begin(here, "import time; time.sleep(30)")
    statuses = [await send(here, job_id, text="x" * (300 << 10)) for _ in range(5)]
    assert statuses == [202, 202, 202, 413, 413]
    kept = [each for each in await here.api.store.fetch_all(live_input.INPUT) if each.key.startswith(f"{job_id}.")]
    assert sum(len(each.data) for each in kept) < 1 << 20
    await here.client.post(f"/v1/jobs/{job_id}/cancel", json={})


async def test_concurrent_senders_lose_nothing() -> None:
    store = MemoryStore(SystemClock())
    await store.open()
    try:
        numbers = await asyncio.gather(*(live_input.append(store, "j", b"%d " % n, max_bytes=1000) for n in range(30)))
        assert sorted(numbers) == list(range(1, 31))
        pieces = [live_input.unpack(each.data).data for each in await store.fetch_all(live_input.INPUT, after="j.")]
        assert sorted(map(int, pieces)) == list(range(30))
    finally:
        await store.close()


# The daemon


async def test_daemon_passes_input_that_comes_before_the_start(connection: DaemonConnection) -> None:
    heard: list[Output] = []
    limits = Limits(time_seconds=60)
    request = RunRequest(id=0, language="python", source=ECHO.encode(), interactive=True, stream=True, limits=limits)
    run_id, response = connection.begin(request, heard.append)
    connection.send(RunInput(id=run_id, data=b"a\n"))
    connection.send(RunInput(id=run_id, data=b"end\n", end=True))
    seen = await response
    assert isinstance(seen, RunFinished)
    assert (seen.verdict, seen.stdout) == (RunVerdict.OK, b"? you said a\n? you said end\n")
    connection.send(RunInput(id=run_id, data=b"after its end\n"))
    connection.send(RunSignal(id=run_id, number=15))
    assert (await connection.fetch_state()).tier is not None


async def test_large_input_waits_for_the_program(connection: DaemonConnection) -> None:
    source = b"import sys, time\ntime.sleep(0.3)\nprint(len(sys.stdin.buffer.read()))"
    request = RunRequest(id=0, language="python", source=source, interactive=True, limits=Limits(time_seconds=60))
    run_id, response = connection.begin(request)
    for _ in range(20):
        connection.send(RunInput(id=run_id, data=b"x" * 100_000))
    connection.send(RunInput(id=run_id, end=True))
    seen = await response
    assert isinstance(seen, RunFinished)
    assert seen.stdout == b"2000000\n"


async def test_program_that_closes_its_input_is_not_disturbed(connection: DaemonConnection) -> None:
    source = b"import os, time\nos.close(0)\nprint('closed', flush=True)\ntime.sleep(0.3)\nprint('end')"
    request = RunRequest(id=0, language="python", source=source, interactive=True, limits=Limits(time_seconds=60))
    run_id, response = connection.begin(request)
    for _ in range(10):
        connection.send(RunInput(id=run_id, data=b"x" * 100_000))
        await asyncio.sleep(0.02)
    seen = await response
    assert isinstance(seen, RunFinished)
    assert (seen.verdict, seen.stdout) == (RunVerdict.OK, b"closed\nend\n")
