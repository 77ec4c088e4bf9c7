"""A handler that leaks: the worker is replaced before its limit, and no job is lost or run twice."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from tests.story.sizes import size
from tests.story.up import JOBYARD, alive, until
from tests.support import ROOT

from jobyard import Jobyard
from jobyard.app.process_manager import REPLACE_EXIT_CODE
from jobyard.config.store_factory import make_store
from jobyard.domain.ids import new_id
from jobyard.domain.job import NewJob, State
from jobyard.ports.admin_store import Filter

pytestmark = [pytest.mark.story, pytest.mark.timeout(300)]

APP = """
import asyncio, os, pathlib, subprocess, sys
from jobyard import Context, Jobyard

yard = Jobyard("sqlite:///jobs.db")
ballast = b"x" * (100 << 20)  # so that few leaks reach the limit
leaked = []
ran = pathlib.Path("ran")
ran.mkdir(exist_ok=True)

def note(ctx, what):
    (ran / f"{ctx.job_id} {os.getpid()} {what} {len(leaked)}").touch()

@yard.job()
async def leak(ctx: Context, mebibytes: int) -> int:
    leaked.append(b"x" * (mebibytes << 20))
    await asyncio.sleep(0.3)  # slower than the margin allows in the second between two measurements
    note(ctx, "leak")
    return os.getpid()

@yard.job()
async def leave(ctx: Context) -> int:
    # A child process that the handler forgets, as a browser would be.
    code = "import time; held = b'x' * (100 << 20); print(flush=True); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    await asyncio.to_thread(child.stdout.readline)
    note(ctx, f"child-{child.pid}")
    return child.pid

@yard.job()
async def stay(ctx: Context) -> None:
    # Far above the limit the first time, and it does not end.
    if not list(ran.glob("* stay *")):
        leaked.append(b"x" * (300 << 20))
        note(ctx, "stay")
        await asyncio.sleep(600)
    note(ctx, "again")
"""
LIMIT = "200M"
JOBS = 16


class Site:
    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.log = folder / "log.txt"
        (folder / "leaky.py").write_text(APP)
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "JOBYARD_STORE": url, "JOBYARD_APP": "leaky:yard"}

    @contextmanager
    def start(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """The real command: a fork of another process could not start itself again."""
        with self.log.open("w") as log:
            process = subprocess.Popen(
                [JOBYARD, *words],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def said(self) -> str:
        return self.log.read_text("utf-8")

    def ran(self) -> list[tuple[str, int, str, int]]:
        """Job, process, what, how much the process had leaked: in the order of their times."""
        paths = sorted((self.folder / "ran").glob("*"), key=lambda path: path.stat().st_mtime_ns)
        words = [path.name.split() for path in paths]
        return [(job, int(pid), what, int(count)) for job, pid, what, count in words]


@pytest.fixture
def site(tmp_path: Path, url: str) -> Site:
    return Site(tmp_path, url)


async def enqueue(site: Site, kind: str, count: int = 1, **payload: object) -> list[str]:
    jobs = [NewJob(id=new_id(), kind=kind, payload=msgspec.json.encode(payload)) for _ in range(count)]
    async with Jobyard(store=make_store(site.url)) as yard:
        return [job.id for job in await yard.store.insert(jobs)]


async def states(site: Site) -> Counter[tuple[State, int, int]]:
    async with Jobyard(store=make_store(site.url)) as yard:
        assert await yard.store.audit() == []
        found = await yard.store.find(Filter(), 1000)
        return Counter((job.state, job.attempt, job.deaths) for job in found.jobs)


@pytest.mark.parametrize("engine", size(("redis",), ("sqlite", "redis", "postgres")))
async def test_workers_of_up_are_replaced_and_each_job_runs_once(site: Site, engine: str) -> None:
    jobs = await enqueue(site, "leak", JOBS, mebibytes=7)
    with site.start("up", "--port", "0", "--insecure", "--memory-limit", LIMIT, "--concurrency", "1") as up:
        until("all jobs have run", lambda: len(site.ran()) == JOBS)
        until("a worker was replaced", lambda: "reached its memory limit; replacing it" in site.said())
        up.send_signal(signal.SIGTERM)
        assert up.wait(60) == 0
    assert sorted(job for job, *_ in site.ran()) == sorted(jobs)
    assert len({pid for _, pid, *_ in site.ran()}) > 1, "the process id changes"
    assert "MiB of its memory limit of 200 MiB" in site.said()
    assert max(count for *_, count in site.ran()) < JOBS
    assert await states(site) == {(State.COMPLETED, 1, 0): JOBS}


async def test_a_worker_alone_starts_again_in_its_process(site: Site) -> None:
    jobs = await enqueue(site, "leak", JOBS, mebibytes=7)
    with site.start("worker", "--memory-limit", LIMIT, "--concurrency", "1", "--until-empty") as worker:
        assert worker.wait(60) == 0, site.said()
        assert {pid for _, pid, *_ in site.ran()} == {worker.pid}, "systemd and a container see one process"
    assert sorted(job for job, *_ in site.ran()) == sorted(jobs)
    assert site.said().count("starting again, with the same command") >= 1
    assert max(count for *_, count in site.ran()) < JOBS
    assert await states(site) == {(State.COMPLETED, 1, 0): JOBS}


async def test_a_child_process_counts_and_is_ended(site: Site) -> None:
    await enqueue(site, "leave")
    with site.start("worker", "--memory-limit", LIMIT, "--concurrency", "1") as worker:
        until("it starts again", lambda: site.said().count(" started: ") == 2)
        [(_, _, what, _)] = site.ran()
        assert not alive(int(what.removeprefix("child-")))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    assert await states(site) == {(State.COMPLETED, 1, 0): 1}


async def test_above_the_limit_a_running_job_is_handed_back(site: Site) -> None:
    await enqueue(site, "stay")
    words = ("worker", "--memory-limit", LIMIT, "--shutdown-timeout", "0.3")
    with site.start(*words) as worker:
        until("it runs again", lambda: [what for *_, what, _ in site.ran()] == ["stay", "again"])
        until("it starts again", lambda: "1 job returned to the queue" in site.said())
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    assert await states(site) == {(State.COMPLETED, 1, 0): 1}


@pytest.mark.parametrize("words", [("worker",), ("up", "--insecure", "--port", "0")])
def test_a_limit_below_what_a_worker_needs_is_refused(site: Site, words: tuple[str, ...]) -> None:
    with site.start(*words, "--memory-limit", "20M") as process:
        assert process.wait(60) == 1
    assert "before its first job" in site.said()
    assert "Raise --memory-limit." in site.said()


async def test_a_supervised_worker_exits_with_its_code(site: Site) -> None:
    """`--until-input-ends` says that another process starts it again."""
    await enqueue(site, "leak", mebibytes=80)
    with site.start("worker", "--memory-limit", LIMIT, "--until-input-ends") as worker:
        assert worker.wait(60) == REPLACE_EXIT_CODE
    assert await states(site) == {(State.COMPLETED, 1, 0): 1}
