"""Shared by the stories of broken servers: load, diagnosis, memory, the final checks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import msgspec
from tests import fork_server
from tests.servers import Server
from tests.story.harness import Harness, Process
from tests.story.overlap import most_at_once
from tests.story.sizes import size

from jobyard.domain.job import State
from jobyard.domain.lease import MAX_DEATHS
from jobyard.errors import StoreError
from jobyard.ports.admin_store import Action

GROUPS = [f"group-{number}" for number in range(10)]
MAX_RUNNING, MAX_PER_GROUP = 14, 3
BATCH = 20
RESUME_SECONDS = size(3600.0, 10.0)  # the soak has the machine for itself
# A worker that keeps what it cannot send would grow with every job; a healthy one only with its caches.
GROWTH_BYTES = 48 << 20
DOCTOR_SECONDS = size(60.0, 30.0)


async def feed(harness: Harness, count: int) -> list[str]:
    """Insert until `count` jobs are acknowledged, whatever happens to the server; return their ids."""
    chance = random.Random(harness.title)
    acknowledged: list[str] = []
    while len(acknowledged) < count:
        jobs = [
            ("span", {"seconds": chance.uniform(0.01, 0.06)}, {"group": chance.choice(GROUPS)}) for _ in range(BATCH)
        ]
        try:
            acknowledged += await harness.enqueue_all(jobs)
        except StoreError:
            # They may or may not be stored; the history does not count them as acknowledged.
            await asyncio.sleep(0.05)
    return acknowledged


async def feed_until(harness: Harness, stop: asyncio.Event, ahead: int = 100) -> list[str]:
    """Keep about `ahead` jobs waiting until `stop` is set, so that every outage interrupts work; return their ids."""
    acknowledged: list[str] = []
    while not stop.is_set():
        with contextlib.suppress(StoreError):  # the server is away, or forgotten clients use up all its sessions
            if len(acknowledged) - (await harness.queue()).completed < ahead:
                acknowledged += await feed(harness, BATCH)
                continue
        await asyncio.sleep(0.02)
    return acknowledged


async def configure(harness: Harness) -> None:
    await harness.configure(max_running=MAX_RUNNING, max_per_group=MAX_PER_GROUP)


async def progress(harness: Harness, feeding: asyncio.Task[list[str]], jobs: int) -> None:
    """Wait until this many more jobs are completed, or none is left and none will be inserted."""
    before: int | None = None

    async def enough() -> bool:
        nonlocal before
        info = await harness.queue()
        before = info.completed if before is None else before
        return info.completed >= before + jobs or (feeding.done() and info.waiting + info.running == 0)

    await harness.until(enough, f"{jobs} more jobs are completed")


async def verify(harness: Harness, acknowledged: list[str]) -> None:
    """After the workers stopped: every acknowledged job is completed, limits held, and work resumed soon."""
    jobs = await harness.all_jobs()
    assert set(acknowledged) <= {job.id for job in jobs}
    assert {job.state for job in jobs} == {State.COMPLETED}
    assert most_at_once(jobs) <= MAX_RUNNING
    for group in GROUPS:
        assert most_at_once(job for job in jobs if job.group == group) <= MAX_PER_GROUP
    result = await harness.verify()
    assert result.recovery_seconds
    assert max(result.recovery_seconds) <= RESUME_SECONDS


async def disconnected(harness: Harness, endpoint: Server) -> None:
    """Once all processes have ended, no connection is left. The test's own store is closed meanwhile: its pool keeps as
    many connections as were once needed at the same time, which differs from run to run."""
    await harness.yard.store.close()
    await harness.until(lambda: endpoint.connections() == 0, "no connection is left over")
    await harness.yard.store.open()


async def drained(harness: Harness) -> None:
    """A lease may have expired three times through no fault of the job: redrive it, as an operator would."""
    await harness.drained()
    dead = [job for job in await harness.all_jobs() if job.state is State.FAILED]
    assert all(job.deaths == MAX_DEATHS for job in dead)
    if dead:
        await harness.yard.store.change(Action.RETRY, [job.id for job in dead])
        await harness.drained()


class Memory:
    """Of workers: bounded, whatever the server does."""

    def __init__(self, workers: list[Process]) -> None:
        self._before = {worker.name: worker.memory_bytes for worker in workers}

    def check(self, workers: list[Process]) -> None:
        for worker in workers:
            grown = worker.memory_bytes - self._before[worker.name]
            assert grown < GROWTH_BYTES, f"{worker.name} has grown by {grown >> 20} MB"


class Diagnosis(msgspec.Struct, frozen=True):
    exit_code: int
    failures: list[str]
    seconds: float


async def doctor(url: str) -> Diagnosis:
    """What the command says, as a process of its own."""
    return await asyncio.to_thread(_doctor, url)


def _doctor(url: str) -> Diagnosis:
    began = time.monotonic()
    words = ["--store", url, "doctor", "--json"]
    done = fork_server.run("jobyard", words, environment=os.environ, folder=Path.cwd(), timeout=DOCTOR_SECONDS)
    assert done.stdout, done.stderr
    findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    failures = [f"{finding['what']}: {finding['says']}" for finding in findings if finding["level"] == "fail"]
    return Diagnosis(done.returncode, failures, time.monotonic() - began)
