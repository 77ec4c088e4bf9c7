"""A fake GitHub and cluster over HTTP, with replicas of the manager and its server in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from tests.server.support import ApiServer, serving
from tests.support import eventually

from jobyard.demo.fake_github import Job, JobSpec
from jobyard.demo.runner_world import CLUSTER_TOKEN, LABELS, NAMESPACE, RunnerWorld
from jobyard.domain.lease import DEFAULT_LEASE_SECONDS
from jobyard.domain.runners.github_job import RunnerScope
from jobyard.domain.runners.profile import RunnerProfile, RunnerTimeouts
from jobyard.domain.runners.runner import Runner, RunnerState
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.github.api import JitConfig
from jobyard.github.client import GitHubAccess, GitHubClient
from jobyard.github.event_ingest import EventIngest
from jobyard.github.kubernetes.client import KubernetesClient
from jobyard.github.kubernetes.credentials import FileCredentials, Value
from jobyard.github.kubernetes.kubeconfig import ClusterAccess
from jobyard.github.kubernetes.launcher import KubernetesLauncher
from jobyard.github.manager import RunnerManager
from jobyard.github.queries import RunnerQueries
from jobyard.github.runner_records import RunnerRecords
from jobyard.github.services import RunnerServices
from jobyard.github.tickets import QUEUE
from jobyard.observability.composite import CompositeObserver
from jobyard.ports.clock import SystemClock
from jobyard.ports.store import Store
from jobyard.server.routes.table import ALL_ROUTES
from jobyard.stores.memory import MemoryStore
from jobyard.worker.worker import Worker

SECRET = "secret"
TIMEOUTS = RunnerTimeouts(minted=5, idle=60)
PATIENCE = 60.0


def profile(name: str = "linux", labels: Sequence[str] = LABELS, **fields: Any) -> RunnerProfile:
    given: dict[str, Any] = {"warm": 1, "timeouts": TIMEOUTS, **fields}
    return RunnerProfile(name=name, labels=tuple(labels), image="runner:test", **given)


class WarmWorld(RunnerWorld):
    """Warm runners ask for their configuration while `may_fetch` is set."""

    def __init__(self, orgs: Sequence[str]) -> None:
        super().__init__(orgs, start_seconds=0.0)
        self.may_fetch = asyncio.Event()
        self.may_fetch.set()
        self.urls: dict[str, str] = {}  # where each warm pod asks, by its token
        self.configurations: list[str] = []

    async def fetch_configuration(self, environment: Mapping[str, str]) -> str | None:
        self.urls[environment["JOBYARD_WARM_TOKEN"]] = environment["JOBYARD_WARM_URL"]
        await self.may_fetch.wait()
        found = await super().fetch_configuration(environment)
        self.configurations += [found] if found else []
        return found

    def pods(self) -> list[dict[str, Any]]:
        return list(self.kubernetes.storage.all("pods"))

    def names(self) -> set[str]:
        return {pod["metadata"]["name"] for pod in self.pods()}

    def secrets(self) -> list[dict[str, Any]]:
        return list(self.kubernetes.storage.all("secrets"))

    def job(self, org: str = "acme", labels: Sequence[str] = LABELS) -> Job:
        """A queued job that runs until the test completes it."""
        spec = JobSpec(labels=list(labels), duration=3600.0)
        return self.github.queue_run(self.repositories[org], [spec]).jobs[0]

    def complete(self, job: Job) -> None:
        self.github.jobs.complete(job, "success")


class CountedGitHub(GitHubClient):
    """Raises the errors of `failures` instead of registering runners, one after the other."""

    failures: list[Exception]
    minted: list[str]

    async def generate_jitconfig(
        self, scope: RunnerScope, name: str, group_id: int, labels: Sequence[str], work_folder: str = "_work"
    ) -> JitConfig:
        if self.failures:
            raise self.failures.pop(0)
        self.minted.append(name)
        return await super().generate_jitconfig(scope, name, group_id, labels, work_folder)


class WarmReplica:
    """`jobyard up` without its process: webhook and API over HTTP, manager, worker of tickets."""

    def __init__(self, world: WarmWorld, store: Store, number: int, api: ApiServer | None = None) -> None:
        self.world = world
        self.store = store
        self.name = f"manager-{number}"
        self.api = api or ApiServer(store, ALL_ROUTES)

    @asynccontextmanager
    async def running(self, settings: ManagerSettings, hooks: Mapping[str, int]) -> AsyncIterator[WarmReplica]:
        access = GitHubAccess(url=self.world.github_url, token=self.world.token, org_hooks=dict(hooks))
        self.github = CountedGitHub(access)
        self.github.failures, self.github.minted = [], []
        ingest = EventIngest(self.store, settings)
        self.services = RunnerServices(
            settings=settings,
            ingest=ingest,
            github=self.github,
            webhook_secrets=(SECRET,),
            queries=RunnerQueries(self.store, settings, cache_seconds=0),
        )
        self.api.dependencies.runners = self.services
        credentials = FileCredentials(Value(CLUSTER_TOKEN.encode()), Value(), Value())
        client = KubernetesClient(ClusterAccess(self.world.kubernetes_url, credentials, Value()))
        launcher = KubernetesLauncher(
            "default", client, instance="test", namespace=NAMESPACE, profiles=settings.profiles
        )
        self.manager = RunnerManager(
            self.store, settings, self.github, {"default": launcher}, worker_id=self.name, ingest=ingest
        )
        worker = Worker(
            self.store,
            self.manager.executor,
            CompositeObserver(),
            queues=[QUEUE],
            concurrency=5,
            lease_seconds=DEFAULT_LEASE_SECONDS,
            shutdown_seconds=5,
            name=self.name,
            services=[self.manager],
        )
        await self.github.start()
        await worker.start()
        try:
            yield self
        finally:
            await worker.stop(0)
            await self.github.stop()


class RecordingStore(MemoryStore):
    """Remembers all records that were ever written."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.written: list[tuple[str, bytes]] = []
        put = self.put

        async def recorded(collection: str, key: str, data: bytes, **options: Any) -> int | None:
            self.written.append((collection, bytes(data)))
            return await put(collection, key, data, **options)

        self.put = recorded


class WarmSite:
    def __init__(self, world: WarmWorld, store: RecordingStore, replicas: list[WarmReplica]) -> None:
        self.world = world
        self.store = store
        self.replicas = replicas
        self.url = ""
        self._stack = AsyncExitStack()

    async def start(self, settings: dict[str, Any]) -> None:
        """Webhooks and warm runners reach the first replica."""
        urls = [await self._stack.enter_async_context(serving(each.api.app)) for each in self.replicas]
        self.url = urls[0]
        hooks = self.world.add_hooks(f"{self.url}/webhooks/github", SECRET)
        for each in self.replicas:
            made = ManagerSettings(**{"instance": "test", "tick_seconds": 0.2, "warm_url": self.url, **settings})
            await self._stack.enter_async_context(each.running(made, hooks))

    async def stop(self) -> None:
        """Stop the replicas; pods and jobs go on. Safe twice."""
        for each in self.replicas:
            each.api.dependencies.draining.set()
        await self._stack.aclose()

    async def runners(self, *states: RunnerState) -> list[Runner]:
        found = await RunnerRecords(self.store).all()
        return [runner for runner in found if not states or runner.state in states]

    async def warm(self, count: int = 1) -> list[Runner]:
        """Wait until this many warm runners are there, and their pods run."""

        async def are_there() -> bool:
            names = {pod["metadata"]["name"] for pod in self.world.pods() if pod["status"].get("phase") == "Running"}
            runners = await self.runners(RunnerState.WARM)
            return len(runners) == count and {runner.name for runner in runners} <= names

        await eventually(are_there, PATIENCE)
        return await self.runners(RunnerState.WARM)

    async def assigned(self) -> Runner:
        """Wait until a warm runner has a job, and may ask for its configuration."""

        async def is_there() -> bool:
            found = await self.runners(RunnerState.ASSIGNED)
            return bool(found) and found[0].assignment is not None and found[0].assignment.is_ready

        await eventually(is_there, PATIENCE)
        return (await self.runners(RunnerState.ASSIGNED))[0]

    async def in_progress(self, job: Job) -> str:
        """Wait until the job runs; the name of its runner."""
        await eventually(lambda: job.status == "in_progress", PATIENCE)
        assert job.runner is not None
        return job.runner.name

    async def at_rest(self, warm: int = 1) -> None:
        """Wait until only warm runners are left."""

        async def is_at_rest() -> bool:
            runners, pods = await self.runners(), self.world.pods()
            is_clean = not self.world.github.runners.all() and len(pods) == warm
            return is_clean and [each.state for each in runners] == [RunnerState.WARM] * warm

        await eventually(is_at_rest, PATIENCE)


@asynccontextmanager
async def warm_site(
    *profiles: RunnerProfile,
    replicas: int = 1,
    orgs: Sequence[str] = ("acme",),
    may_fetch: bool = True,
    **settings: Any,
) -> AsyncIterator[WarmSite]:
    world = WarmWorld(orgs)
    if not may_fetch:
        world.may_fetch.clear()
    async with world.serving(), started(world, *profiles, replicas=replicas, **settings) as site:
        yield site


@asynccontextmanager
async def started(
    world: WarmWorld,
    *profiles: RunnerProfile,
    store: RecordingStore | None = None,
    replicas: int = 1,
    **settings: Any,
) -> AsyncIterator[WarmSite]:
    """Replicas on a new store, or on the given one."""
    made = store or RecordingStore()
    if store is None:
        await made.open()
    site = WarmSite(world, made, [WarmReplica(world, made, number) for number in range(1, replicas + 1)])
    try:
        await site.start({"profiles": profiles or (profile(),), **settings})
        yield site
    finally:
        await site.stop()
        if store is None:
            await made.close()
