"""`scripts/check-running-jobs.sh` against a real server, with curl and jq alone."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.conformance.support import claim_one, new
from tests.server.support import ApiServer, api_server, serving
from tests.servers.absent import Absent, need
from tests.servers.fixtures import absent
from tests.support import ROOT

from jobyard.domain.job import QueueSettings

SCRIPT = ROOT / "scripts/check-running-jobs.sh"


class Said(NamedTuple):
    code: int | None
    output: str
    errors: str


@pytest.fixture(autouse=True)
def _programs() -> None:
    try:
        for program in ("curl", "jq"):
            need(program)
    except Absent as error:
        absent(error)


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with api_server() as made:
        yield made


async def check(**environment: str) -> Said:
    process = await asyncio.create_subprocess_exec(
        str(SCRIPT),
        env={"PATH": os.environ["PATH"], "no_proxy": "*", **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    return Said(process.returncode, output.decode(), errors.decode())


async def test_it_shows_what_runs_and_what_waits(api: ApiServer, tmp_path: Path) -> None:
    await api.store.configure("oliveyoung", QueueSettings(max_running=1))
    evil = new(queue="oliveyoung", payload=b'{"workflow_id":"scan \\u001b[2J"}')
    await api.store.insert([evil, new(queue="oliveyoung"), new(queue="ably")])
    await claim_one(api.store, "oliveyoung")
    token = await api.token("viewer")
    file = tmp_path / "token"
    file.write_text(f"{token}\n")
    async with serving(api.app) as url:
        said = await check(API_URL=url, JOBYARD_TOKEN=token)
        assert (said.code, said.errors) == (0, "")
        running, queued, summary = said.output.split("\n\n")
        heading, row = running.splitlines()
        assert heading.split() == ["PLATFORM", "JOB", "WORKFLOW", "STARTED", "FOR"]
        assert row.startswith(f"oliveyoung  {evil.id}  scan ?[2J  ")
        assert row.index(evil.id) == heading.index("JOB")
        assert queued.splitlines() == ["PLATFORM    QUEUED", "ably        1", "oliveyoung  1"]
        assert summary == "1 running, 2 queued\n"
        on_purpose = await check(JOBYARD_SERVER=url, API_URL="http://127.0.0.1:9", JOBYARD_TOKEN=token)
        assert (on_purpose.code, on_purpose.errors) == (0, "")
        by_file = await check(API_URL=f"{url}/", JOBYARD_TOKEN_FILE=str(file))
        assert (by_file.code, by_file.output.splitlines()[-1]) == (0, "1 running, 2 queued")


async def test_nothing_runs(api: ApiServer) -> None:
    async with serving(api.app) as url:
        said = await check(API_URL=url, JOBYARD_TOKEN=await api.token("viewer"))
    assert said == (0, "No running jobs.\n\nPLATFORM  QUEUED\n\n0 running, 0 queued\n", "")


async def test_a_refusal_is_one_line(api: ApiServer) -> None:
    async with serving(api.app) as url:
        without = await check(API_URL=url)
        wrong = await check(API_URL=url, JOBYARD_TOKEN="jy_wrong")
        elsewhere = await check(API_URL=f"{url}/docs?", JOBYARD_TOKEN=await api.token("viewer"))
    assert (without.code, without.output) == (1, "")
    assert without.errors.startswith("Error: The request has no token.")
    assert (wrong.code, wrong.errors) == (1, "Error: The token is wrong, revoked or expired.\n")
    assert elsewhere.code == 1
    assert elsewhere.errors.endswith("Check JOBYARD_SERVER or API_URL.\n")
    gone = await check(API_URL=url)
    assert gone.code == 1
    assert "curl: " in gone.errors


def test_it_may_be_run() -> None:
    assert SCRIPT.stat().st_mode & stat.S_IXUSR
