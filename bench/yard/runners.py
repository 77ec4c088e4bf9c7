"""The runner manager: how fast events of GitHub are stored, and how soon a pod follows."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import multiprocessing
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import httpx2

from bench.contender import Outcome
from bench.yard.http import WARM_UP, load, outcome
from bench.yard.workload import run
from jobyard.app.runners import build_services
from jobyard.config.sections import RunnersSection, ServerSection
from jobyard.config.store_factory import make_store
from jobyard.demo.fake_kubernetes.storage import Change
from jobyard.demo.runner_world import LABELS, RunnerWorld
from jobyard.domain.runners.profile import RunnerProfile
from jobyard.github.job_records import GitHubJobs
from jobyard.github.tickets import Tickets
from jobyard.operations.job_factory import JobFactory
from jobyard.server.bootstrap import bootstrap_access
from jobyard.server.server import Server, listen, url_of

STORED = "stored before the response"
PATH = "/webhooks/github"
SECRET = "bench"
ORGANIZATIONS = tuple(f"org-{number}" for number in range(20))
RUNNERS = RunnersSection(
    github_token="none",  # no request is sent to GitHub
    webhook_secrets=(SECRET,),
    profiles=(RunnerProfile(name="linux", labels=LABELS, image="runner"),),
)
START_SECONDS = 60.0
JOB_SECONDS = 0.02


# Events


async def _serve(url: str, pipe: Connection) -> None:
    store = make_store(url)
    await store.open()
    listener = listen("127.0.0.1", 0)
    access = await bootstrap_access(store, listener, ServerSection(), insecure=False)
    server = Server(store, JobFactory(), access, ServerSection())
    server.dependencies.runners = build_services(RUNNERS, store)
    serving = asyncio.ensure_future(server.run(listener))
    pipe.send(url_of(listener))
    await asyncio.to_thread(pipe.recv)
    server.stop()
    await serving
    await store.close()


def _process(url: str, pipe: Connection) -> None:
    run(_serve(url, pipe))


@contextlib.contextmanager
def _serving(url: str) -> Iterator[str]:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_process, args=(url, there))
    process.start()
    try:
        yield here.recv()
    finally:
        here.send("stop")
        process.join()


def _event(number: int) -> bytes:
    """A queued event with the fields that matter, and as long as those of GitHub."""
    org = ORGANIZATIONS[number % len(ORGANIZATIONS)]
    job = {
        "id": number,
        "run_id": number // 10,
        "run_attempt": 1,
        "name": "build",
        "status": "queued",
        "created_at": "2026-11-02T10:00:00Z",
        "labels": LABELS,
        "html_url": f"https://github.example.com/{org}/web/actions/runs/{number // 10}/job/{number}",
    }
    repository = {"full_name": f"{org}/web", "owner": {"login": org, "type": "Organization"}, "links": "x" * 6000}
    payload = {"action": "queued", "workflow_job": job, "repository": repository, "organization": {"login": org}}
    body = json.dumps(payload).encode()
    signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    lines = (
        f"POST {PATH} HTTP/1.1",
        "Host: 127.0.0.1",
        "X-GitHub-Event: workflow_job",
        f"X-GitHub-Delivery: {number}",
        f"X-Hub-Signature-256: sha256={signature}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def receive(url: str, jobs: int) -> Outcome:
    warm_up = [_event(number) for number in range(1, WARM_UP + 1)]
    events = [_event(number) for number in range(WARM_UP + 1, WARM_UP + jobs + 1)]
    with _serving(url) as address:

        async def main() -> tuple[float, list[float]]:
            await load(address, warm_up, len(warm_up), 200)
            return await load(address, events, jobs, 200)

        elapsed, times = run(main())
    run(_check_stored(url, WARM_UP + jobs))
    return outcome(jobs, elapsed, times)


async def _check_stored(url: str, jobs: int) -> None:
    store = make_store(url)
    await store.open()
    found = len(await GitHubJobs(store, ()).active()), len(await Tickets(store).live())
    await store.close()
    assert found == (jobs, jobs), f"{found} of {jobs} jobs and tickets are stored"


# Launches


@contextlib.asynccontextmanager
async def _manager(world: RunnerWorld, url: str, folder: Path) -> AsyncIterator[None]:
    """`jobyard up` for this world, until the block ends."""
    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    hooks = world.add_hooks(f"{address}{PATH}", SECRET)
    file = world.write_configuration(folder, hooks, SECRET)
    command = [sys.executable, "-m", "jobyard", "--config", str(file), "--store", url]
    command += ["up", "--insecure", "--no-scheduler", "--port", str(port)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JOBYARD_")}
    with (folder / "manager.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log, env=environment, cwd=folder)
    try:
        async with asyncio.timeout(START_SECONDS):
            await _ready(f"{address}/readyz")
        yield
    finally:
        process.terminate()
        await process.wait()


async def _ready(url: str) -> None:
    async with httpx2.AsyncClient() as client:
        while True:
            with contextlib.suppress(httpx2.HTTPError):
                if (await client.get(url)).status_code == 200:
                    return
            await asyncio.sleep(0.1)


async def _launch(url: str, jobs: int, folder: Path) -> list[float]:
    world = RunnerWorld(("acme",), start_seconds=0.0)
    rng = random.Random(7)
    times: list[float] = []
    created: asyncio.Queue[float] = asyncio.Queue()
    gone = asyncio.Event()

    def on_change(change: Change) -> None:
        if change.before is None:
            created.put_nowait(time.perf_counter())
        elif change.after is None:
            gone.set()

    async with world.serving(), _manager(world, url, folder):
        world.kubernetes.storage.subscribe("pods", on_change)
        for number in range(-5, jobs):  # the first few warm up
            gone.clear()
            began = time.perf_counter()
            world.queue_jobs("acme", 1, (JOB_SECONDS, JOB_SECONDS))
            async with asyncio.timeout(START_SECONDS):
                seconds = await created.get() - began
                await gone.wait()
            if number >= 0:
                times.append(seconds * 1000)
            await asyncio.sleep(rng.uniform(0.05, 0.15))
    return times


def launch(url: str, jobs: int, folder: Path) -> Outcome:
    times = sorted(run(_launch(url, jobs, folder)))
    return Outcome(
        {"p50_ms": median(times), "p95_ms": times[len(times) * 95 // 100], "p99_ms": times[len(times) * 99 // 100]}
    )
