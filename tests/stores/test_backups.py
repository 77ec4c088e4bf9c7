"""The commands of docs/howto/backup.md: run as they stand there, and jobs go on in what they restore."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.conformance.support import claim_one
from tests.house.repository import DOCS, blocks
from tests.servers.postgres import PostgresServer, program
from tests.stores.redis_support import running

from jobyard import Context, Jobyard

COMMANDS = {block.mark: block.text for block in blocks(DOCS / "howto/backup.md") if block.mark}
pytestmark = pytest.mark.timeout(300)


async def follow(name: str, folder: Path, **variables: str) -> None:
    """Run the block of the page that is marked with this name."""
    await asyncio.to_thread(run, COMMANDS[name], folder, variables)


def run(commands: str, folder: Path, variables: dict[str, str]) -> None:
    backups, own = folder / "backups", Path(sys.executable).parent
    backups.mkdir(exist_ok=True)
    environment = {**os.environ, "PATH": f"{own}:{os.environ['PATH']}", "BACKUPS": str(backups), **variables}
    words = ["bash", "-eu", "-o", "pipefail", "-c", commands]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


def application(url: str) -> Jobyard:
    yard = Jobyard(url)

    @yard.job()
    async def echo(ctx: Context, word: str) -> str:
        return word

    return yard


async def prepare(yard: Jobyard) -> dict[str, str]:
    """One job that has ended, one in flight whose worker will be gone, one that waits."""
    done = await yard.enqueue("echo", {"word": "done"})
    async with yard.worker():
        await done.result(60)
    in_flight = await yard.enqueue("echo", {"word": "in flight"})
    assert (await claim_one(yard.store)).job_id == in_flight.id
    waiting = await yard.enqueue("echo", {"word": "waiting"})
    return {"done": done.id, "in flight": in_flight.id, "waiting": waiting.id}


async def go_on(yard: Jobyard, ids: dict[str, str]) -> None:
    assert await yard.store.audit() == []
    async with yard.worker(lease=1):
        for word, job_id in ids.items():
            assert await yard.job_handle(job_id).result(60) == word
    assert (await yard.get(ids["in flight"])).deaths == 1
    assert len((await yard.page()).items) == len(ids), "what came after the backup is gone"


@asynccontextmanager
async def backed_up(yard: Jobyard) -> AsyncIterator[dict[str, str]]:
    """The backup is made inside, beside an open store; then more happens that is not in it."""
    async with yard:
        ids = await prepare(yard)
        yield ids
        await yard.enqueue("echo", {"word": "later"})


async def test_sqlite(tmp_path: Path) -> None:
    yard = application(f"sqlite:///{tmp_path}/jobs.db")
    async with backed_up(yard) as ids:
        await follow("sqlite backup", tmp_path)
    await follow("sqlite restore", tmp_path)
    async with application(f"sqlite:///{tmp_path}/jobs.db") as restored:
        await go_on(restored, ids)


async def test_postgres(tmp_path: Path) -> None:
    with PostgresServer() as server:
        restored_url = f"{server.url.rpartition('/')[0]}/jobs_restored"
        programs = f"{Path(sys.executable).parent}:{program('pg_dump').parent}:{os.environ['PATH']}"
        variables = {"DATABASE_URL": server.url, "RESTORED_URL": restored_url, "PATH": programs}
        async with backed_up(application(server.url)) as ids:
            await follow("postgres backup", tmp_path, **variables)
        await follow("postgres restore", tmp_path, **variables)
        async with application(restored_url) as restored:
            await go_on(restored, ids)


async def test_redis(tmp_path: Path) -> None:
    with running() as server:
        async with backed_up(application(server.url)) as ids:
            await follow("redis backup", tmp_path, REDIS_URL=server.url)
        server.stop()
        await follow("redis restore", tmp_path, REDIS_FOLDER=str(server.folder), REDIS_PORT=str(server.port))
        server.start()
        async with application(server.url) as restored:
            await go_on(restored, ids)
