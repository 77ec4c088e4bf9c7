"""Programs through the client: run and waited for, followed, in batches, refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.client.support import Site
from tests.sandbox.fake_daemon import daemon
from tests.support import eventually

from jobyard.app.sandbox import enable_sandbox
from jobyard.client import BlockingClient, Client, ExecuteBatchRequest, ExecuteRequest
from jobyard.config.sections import SandboxSection
from jobyard.errors import BadInput, JobNotFound, StoreUnavailable
from jobyard.operations.sandboxes import Sandboxes


@pytest.fixture
async def sandboxed(here: Site, tmp_path: Path) -> AsyncIterator[Site]:
    """A worker with a sandbox beside the server."""
    async with daemon(tmp_path) as fake:
        enable_sandbox(here.yard, SandboxSection(enabled=True, socket=fake.path))
        async with here.yard.worker():
            await eventually(lambda: Sandboxes(here.yard.store).tier_of("python"))
            yield here


def program(*lines: str) -> ExecuteRequest:
    return ExecuteRequest(language="python", source_code="\n".join(lines))


async def test_run_and_waited_for(sandboxed: Site, client: Client) -> None:
    told = await client.execute(program("out hello"), wait=20)
    assert told.status == "COMPLETED"
    assert isinstance(told.result, dict)
    assert told.result["stdout"] == "hello\n"
    assert await client.execution(told.job_id) == told
    later = await client.execute(program("out later"))
    assert later.status == "PENDING"
    assert (await client.execution(later.job_id, wait=20)).status == "COMPLETED"


async def test_a_batch_and_the_languages(sandboxed: Site, client: Client) -> None:
    batch = ExecuteBatchRequest(language="python", source_code="cat", inputs=("a", "b"))
    told = await client.execute(batch, wait=20)
    assert isinstance(told.result, dict)
    assert [run["stdout"] for run in told.result["results"]] == ["a", "b"]
    assert [item.name for item in (await client.languages()).items] == ["c", "python"]


async def test_followed_from_begin_to_end(sandboxed: Site, client: Client) -> None:
    job_id = (await client.execute(program("out a", "sleep 0.3", "err b"))).job_id
    heard = [each async for each in client.output(job_id)]
    assert [(name, data.get("text")) for name, data in heard[:-1]] == [("stdout", "a\n"), ("stderr", "b\n")]
    assert (heard[-1][0], heard[-1][1]["status"]) == ("finished", "COMPLETED")


async def test_refusals_are_the_usual_errors(here: Site, client: Client) -> None:
    with pytest.raises(StoreUnavailable, match="No live worker has a sandbox"):
        async with Client(here.url, await here.token(), patience=0) as hasty:
            await hasty.execute(program("x"))
    with pytest.raises(BadInput):
        await client.execute(ExecuteRequest(language="python", source_code="x" * 300_000))
    with pytest.raises(JobNotFound):
        await client.execution("none")


async def test_also_without_await(sandboxed: Site) -> None:
    token = await sandboxed.token()

    def body() -> None:
        with BlockingClient(sandboxed.url, token) as client:
            told = client.execute(program("out x"), wait=20)
            assert told.status == "COMPLETED"
            assert [name for name, _ in client.output(told.job_id)] == ["stdout", "finished"]

    await asyncio.to_thread(body)
