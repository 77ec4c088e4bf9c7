"""Programs through the client: run, wait, follow, batches, errors."""

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


async def test_run_and_wait(sandboxed: Site, client: Client) -> None:
    response = await client.execute(program("out hello"), wait=20)
    assert response.status == "COMPLETED"
    assert isinstance(response.result, dict)
    assert response.result["stdout"] == "hello\n"
    assert await client.execution(response.job_id) == response
    later = await client.execute(program("out later"))
    assert later.status == "PENDING"
    assert (await client.execution(later.job_id, wait=20)).status == "COMPLETED"


async def test_a_batch_and_the_languages(sandboxed: Site, client: Client) -> None:
    batch = ExecuteBatchRequest(language="python", source_code="cat", inputs=("a", "b"))
    response = await client.execute(batch, wait=20)
    assert isinstance(response.result, dict)
    assert [run["stdout"] for run in response.result["results"]] == ["a", "b"]
    assert [item.name for item in (await client.languages()).items] == ["c", "python"]


async def test_follow_the_output(sandboxed: Site, client: Client) -> None:
    job_id = (await client.execute(program("out a", "sleep 0.3", "err b"))).job_id
    received = [each async for each in client.output(job_id)]
    assert [(name, data.get("text")) for name, data in received[:-1]] == [("stdout", "a\n"), ("stderr", "b\n")]
    assert (received[-1][0], received[-1][1]["status"]) == ("finished", "COMPLETED")


async def test_errors(here: Site, client: Client) -> None:
    here.api.dependencies.rejects_without_sandbox = True
    with pytest.raises(StoreUnavailable):
        async with Client(here.url, await here.token(), patience=0) as hasty:
            await hasty.execute(program("x"))
    with pytest.raises(BadInput):
        await client.execute(ExecuteRequest(language="python", source_code="x" * 300_000))
    with pytest.raises(JobNotFound):
        await client.execution("none")


async def test_blocking_client(sandboxed: Site) -> None:
    token = await sandboxed.token()

    def body() -> None:
        with BlockingClient(sandboxed.url, token) as client:
            response = client.execute(program("out x"), wait=20)
            assert response.status == "COMPLETED"
            assert [name for name, _ in client.output(response.job_id)] == ["stdout", "finished"]

    await asyncio.to_thread(body)
