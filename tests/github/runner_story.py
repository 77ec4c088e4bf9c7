"""A GitHub, a cluster and real manager processes: starts, kills, observes and judges them."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import httpx2 as httpx
from tests import fork_server
from tests.fork_server import ForkedProcess
from tests.servers.ports import free_port
from tests.story.engines import empty_store, start_servers
from tests.support import PATIENCE_SECONDS, ROOT

from jobyard.config.store_factory import make_store
from jobyard.demo.fake_github import Job, JobSpec
from jobyard.demo.runner_world import LABELS, NAMESPACE, RunnerWorld
from jobyard.github.job_records import GitHubJobs
from jobyard.github.kubernetes.labels import ORG
from jobyard.github.runner_records import RunnerRecords
from jobyard.github.tickets import QUEUE, Tickets
from jobyard.ports.store import Store

SECRET = "story"
# Short, so that what follows a crash is seen soon.
INTERVALS: dict[str, Any] = {"tick_seconds": 0.5, "full_seconds": 5.0, "redelivery_seconds": 2.0}
TIMEOUTS = {"minted": 5, "idle": 2}
PROFILE = {"name": "linux", "labels": list(LABELS), "image": "runner:story", "timeouts": TIMEOUTS}
UNTIL_TOLD = 86_400.0
ENDED = ("Succeeded", "Failed")
ALARMS = ("Traceback", "failed unexpectedly")


class RunnerStory:
    """Jobs run until the story completes them, or until `release`."""

    def __init__(self, folder: Path, engine: str, world: RunnerWorld, port: int) -> None:
        self.folder = folder
        self.world = world
        self._engine = engine
        self._stores = contextlib.ExitStack()
        self.store_url = self._stores.enter_context(empty_store(engine, folder))
        self.store: Store = make_store(self.store_url)
        self.url = f"http://127.0.0.1:{port}"
        self.port = port
        self.http = httpx.AsyncClient(base_url=self.url, timeout=PATIENCE_SECONDS)
        self.peaks: Counter[str] = Counter()  # pods that held a slot at the same time, by organization
        self.peak = 0
        self.launched: list[str] = []  # names of pods in the order of their creation
        self._running: dict[str, str] = {}  # organization by pod
        self._processes: list[tuple[ForkedProcess, Path]] = []
        self._configuration = folder / "jobyard.yaml"

    def configure(self, **settings: Any) -> None:
        hooks = self.world.add_hooks(f"{self.url}/webhooks/github", SECRET)
        self.world.write_configuration(self.folder, hooks, SECRET, **{**INTERVALS, "profiles": [PROFILE], **settings})

    # Processes

    def start(self, *words: str) -> ForkedProcess:
        log = self.folder / f"{'-'.join(words[:2])}-{len(self._processes) + 1}.log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("JOBYARD_")}
        arguments = ["--config", str(self._configuration), "--store", self.store_url, *words]
        with log.open("wb") as output:
            file = output.fileno()
            process = fork_server.start(
                "jobyard",
                arguments,
                environment={**environment, "PYTHONPATH": str(ROOT)},
                folder=self.folder,
                stdout=file,
                stderr=file,
            )
        self._processes.append((process, log))
        return process

    async def start_up(self) -> ForkedProcess:
        """`jobyard up`, once it is ready."""
        process = self.start("up", "--insecure", "--no-scheduler", "--port", str(self.port))
        await self.until(self.is_ready, "the server is ready")
        return process

    async def start_server(self) -> ForkedProcess:
        process = self.start("server", "--insecure", "--port", str(self.port))
        await self.until(self.is_ready, "the server is ready")
        return process

    async def command(self, *words: str) -> str:
        """A command that must succeed; what it printed."""
        process = self.start(*words)
        assert await asyncio.to_thread(process.wait, PATIENCE_SECONDS) == 0, self.said()
        return self._processes[-1][1].read_text()

    async def is_ready(self) -> bool:
        try:
            return (await self.http.get("/readyz")).status_code == 200
        except httpx.HTTPError:
            return False

    def said(self) -> str:
        return "\n".join(f"{log.name}: {log.read_text()[-4000:]}" for _, log in self._processes)

    async def close(self) -> None:
        with contextlib.suppress(TimeoutError):  # a delivery that is cut off would leave its connection open
            async with asyncio.timeout(5):
                await self.world.github.webhooks.drain()
        await self.http.aclose()
        for process, _ in self._processes:
            process.kill()
            process.wait()
        await self.store.close()
        self._stores.close()

    async def new_store(self) -> None:
        """Go on with an empty store, as after a loss of all data."""
        await self.store.close()
        folder = self.folder / "empty"
        folder.mkdir()
        self.store_url = self._stores.enter_context(empty_store(self._engine, folder))
        self.store = make_store(self.store_url)
        await self.store.open()

    # GitHub

    def queue(self, counts: dict[str, int]) -> None:
        for org, count in counts.items():
            specs = [JobSpec(labels=LABELS, duration=UNTIL_TOLD) for _ in range(count)]
            for first in range(0, count, 10):
                self.world.github.queue_run(self.world.repositories[org], specs[first : first + 10])

    def jobs(self, *states: str, org: str | None = None) -> list[Job]:
        """Oldest first."""
        return [
            job
            for job in self.world.github.jobs.jobs.values()
            if job.status in states and org in (None, job.repository.owner.login)
        ]

    def running(self) -> dict[str, int]:
        """How many jobs run, by organization."""
        return Counter(job.repository.owner.login for job in self.jobs("in_progress"))

    def complete(self, job: Job) -> None:
        self.world.github.jobs.complete(job, "success")

    def release(self, seconds: float = 0.05) -> None:
        """Running jobs end now, and later ones after a moment."""
        for job in self.jobs("queued"):
            job.spec.duration = seconds
        for job in self.jobs("in_progress"):
            self.complete(job)

    # The cluster and the store

    async def observe(self) -> None:
        """Follow all pods; exact, as every change of the cluster is seen in order."""
        async for event in self.world.kubernetes.watch("pods", NAMESPACE):
            name, pod = event["object"]["metadata"].get("name"), event["object"]
            if event["type"] == "BOOKMARK" or name is None:
                continue
            if event["type"] == "DELETED" or pod["status"].get("phase") in ENDED:
                self._running.pop(name, None)
            elif name not in self._running:
                self._running[name] = pod["metadata"]["labels"][ORG]
                self.launched.append(name)
            counts = Counter(self._running.values())
            self.peaks |= counts
            self.peak = max(self.peak, len(self._running))

    def age_secrets(self) -> None:
        """Make secrets of launches that a kill interrupted old enough to be swept."""
        storage = self.world.kubernetes.storage
        for item in list(storage.all("secrets", NAMESPACE)):
            old = copy.deepcopy(item)
            old["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
            storage.put("secrets", (NAMESPACE, item["metadata"]["name"]), old)

    def pods(self) -> list[str]:
        return sorted(self._running)

    async def tickets(self) -> dict[str, tuple[int, int]]:
        """Running and waiting tickets by organization."""
        groups = await self.store.groups(QUEUE)
        return {str(group.name): (group.running, group.waiting) for group in groups if group.running or group.waiting}

    async def leftovers(self) -> dict[str, int]:
        """What is left when everything has ended; an empty dictionary, if nothing is."""
        cluster = self.world.kubernetes
        records = GitHubJobs(self.store, ())
        found = {
            "pods": len((await cluster.list("pods", NAMESPACE))["items"]),
            "secrets": len((await cluster.list("secrets", NAMESPACE))["items"]),
            "registrations": len(self.world.github.runners.all()),
            "jobs": len(await records.active()),
            "runners": len(await RunnerRecords(self.store).all()),
            "tickets": len(await Tickets(self.store).live()),
        }
        return {what: count for what, count in found.items() if count}

    # Waiting and judging

    async def until(self, condition: Callable[[], bool | Awaitable[bool]], what: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    holds = condition()
                    if holds if isinstance(holds, bool) else await holds:
                        return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            state = f"running {self.running()}, tickets {await self.tickets()}, left {await self.leftovers()}"
            raise AssertionError(f"Not in time: {what}. {state}\n{self.said()}") from None

    async def all_run(self, **counts: int) -> None:
        """Wait until exactly this many jobs of each organization run."""
        await self.until(lambda: self.running() == counts, f"{counts} run")

    async def ends(self, *, but: str = "", after_kill: bool = False) -> None:
        """Wait until all jobs have ended and nothing is left of them, but what is named here."""
        await self.until(lambda: not self.jobs("queued", "in_progress", "waiting", "pending"), "all jobs have ended")

        async def nothing_left() -> bool:
            if after_kill:  # at each look: the cluster may receive the last request of a killed manager later
                self.age_secrets()
            return not set(await self.leftovers()) - {but}

        await self.until(nothing_left, "nothing is left")
        assert all(job.conclusion == "success" for job in self.jobs("completed"))
        assert not any(alarm in self.said() for alarm in ALARMS), self.said()


@contextlib.asynccontextmanager
async def runner_story(folder: Path, engine: str, orgs: Sequence[str], **settings: Any) -> AsyncIterator[RunnerStory]:
    """A story on an empty store; `settings` of the section `runners`."""
    stage = folder / engine
    stage.mkdir()
    world = RunnerWorld(orgs, start_seconds=0.0)
    async with world.serving():
        story = RunnerStory(stage, engine, world, free_port())
        observer = asyncio.create_task(story.observe())
        try:
            await story.store.open()
            story.configure(**settings)
            yield story
        finally:
            observer.cancel()
            await story.close()


async def on_stores(tell: Callable[[str], Awaitable[None]], engines: Iterable[str]) -> None:
    """One story on several stores at the same time; failures are raised before skips."""
    start_servers(engines)
    ends = await asyncio.gather(*(tell(engine) for engine in engines), return_exceptions=True)
    for end in sorted((end for end in ends if end is not None), key=lambda end: not isinstance(end, Exception)):
        raise end
