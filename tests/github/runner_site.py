"""A store with GitHub jobs and runners, a fake GitHub beside it, and the services that the server uses."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec
from uuid_utils import uuid7

from jobyard.demo.fake_github import FakeGitHub, Hook, JobSpec
from jobyard.demo.fake_github import entities as fake
from jobyard.demo.fake_github.app import create_app
from jobyard.domain.instant import Instant
from jobyard.domain.job import State
from jobyard.domain.runners.github_job import GitHubJob, GitHubJobState, JobEvent
from jobyard.domain.runners.profile import RunnerProfile
from jobyard.domain.runners.runner import Runner, RunnerState
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.domain.state import Settlement, Transition
from jobyard.github.client import GitHubAccess, GitHubClient
from jobyard.github.event_ingest import EventIngest
from jobyard.github.manager import declare_queue
from jobyard.github.queries import RunnerQueries
from jobyard.github.services import RunnerServices
from jobyard.github.tickets import QUEUE, payload_of
from jobyard.ports.clock import SystemClock
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.ports.store import Store
from jobyard.stores.memory import MemoryStore

LABELS = ("self-hosted", "code-linux")
LINUX = RunnerProfile(name="linux", labels=LABELS)
SPEC = JobSpec(labels=list(LABELS), duration=3600.0)
WORKER = "manager-1"


async def accept(hook: Hook, headers: Mapping[str, str], body: bytes) -> int:
    return 200


class RunnerSite:
    def __init__(self, store: Store, settings: ManagerSettings) -> None:
        self.store = store
        self.settings = settings
        self.fake = FakeGitHub(clock=time.time, rng=random.Random(3), deliver=accept)
        token = self.fake.create_personal_token(["admin:org", "admin:org_hook", "repo"]).value
        access = GitHubAccess(url="http://github.test", token=token)
        self.github = GitHubClient(access, transport=httpx2.ASGITransport(create_app(self.fake)))
        self.ingest = EventIngest(store, settings)
        self.queries = RunnerQueries(store, settings, cache_seconds=0)
        self.services = RunnerServices(
            settings=settings,
            ingest=self.ingest,
            github=self.github,
            webhook_secrets=("secret",),
            queries=self.queries,
        )
        self._began = round(time.time() * 1000)
        self._numbers = iter(range(1001, 1_000_000))

    # What GitHub sends

    async def receive(self, org: str, state: GitHubJobState = GitHubJobState.QUEUED, **fields: Any) -> GitHubJob:
        job_id = fields.pop("job_id", None) or next(self._numbers)
        usual: dict[str, Any] = {
            "run_id": job_id + 5_000_000,
            "job_name": f"build {job_id}",
            "repo_full_name": f"{org}/shop",
            "org_name": org,
            "labels": LABELS,
            "queued_at": self._began + job_id,
        }
        job = GitHubJob(job_id=job_id, state=state, **(usual | fields))
        event = JobEvent(action=state.value, job=job, received_at=await self.store.now())
        return (await self.ingest.receive(event)).job

    def queue_on_github(self, repo: str = "acme/shop", spec: JobSpec = SPEC) -> fake.Job:
        owner, _, name = repo.partition("/")
        accounts = self.fake.accounts
        org = accounts.owners.get(owner) or self.fake.create_organization(owner)
        repository = org.repositories.get(name) or self.fake.create_repository(org, name)
        return self.fake.queue_run(repository, [spec]).jobs[0]

    # What a manager does

    async def start_manager(self) -> None:
        await declare_queue(self.store, self.settings)
        worker = WorkerInfo(id=WORKER, host="h", pid=1, queues=(QUEUE,), concurrency=20)
        await self.store.heartbeat(worker, 3600)

    async def launch(self, most: int = 1000, state: RunnerState = RunnerState.STARTING) -> list[Runner]:
        """Claim tickets as a manager does, each with a runner in the given state."""
        leases = (await self.store.exchange(WORKER, (), (QUEUE,), most, 3600)).leases
        made = []
        for lease in leases:
            ticket, now = payload_of(lease), await self.store.now()
            runner = Runner(
                name=f"jy-{ticket.org_name}-{lease.job_id[-8:]}-{uuid7().hex[-6:]}",
                org_name=ticket.org_name,
                profile=ticket.profile,
                state=state,
                since=now,
                ticket=lease.key,
                requested_job_id=ticket.job_id,
                received_at=now,
                planned_at=now,
                minted_at=now,
                created_at=now,
            )
            await self.ingest.runners.create(runner)
            made.append(runner)
        return made

    async def start_jobs(self, runners: list[Runner]) -> None:
        """GitHub gives each runner the job that it was launched for."""
        for runner in runners:
            assert runner.requested_job_id is not None
            await self.receive(
                runner.org_name,
                GitHubJobState.IN_PROGRESS,
                job_id=runner.requested_job_id,
                runner_name=runner.name,
                runner_id=7,
            )

    async def end(self, runner: Runner) -> None:
        """The pod has ended: its ticket is settled and its record removed."""
        assert runner.ticket is not None
        transition = Transition(to=State.COMPLETED, result=b"null")
        await self.store.exchange(WORKER, [Settlement(runner.ticket, transition)], (), 0, 30)
        await self.ingest.runners.remove(runner.name)

    async def now(self) -> Instant:
        return await self.store.now()


@asynccontextmanager
async def runner_site(settings: ManagerSettings | None = None, store: Store | None = None) -> AsyncIterator[RunnerSite]:
    made = store or MemoryStore(SystemClock())
    await made.open()
    site = RunnerSite(made, msgspec.structs.replace(settings or ManagerSettings(), profiles=(LINUX,)))
    try:
        yield site
    finally:
        await site.github.stop()
        site.fake.close()
        await made.close()
