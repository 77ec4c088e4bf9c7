"""A runner manager with a fake GitHub and a fake cluster over HTTP, on the store of a server that is there already."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.github.warm_site import SECRET, WarmReplica, WarmWorld, profile
from tests.server.support import ApiServer

from jobyard.demo.fake_github import Job, JobSpec
from jobyard.demo.runner_world import LABELS
from jobyard.domain.runners.settings import ManagerSettings

UNTIL_TOLD = 86_400.0


class DashboardRunners:
    """Organizations whose jobs run until they are completed here."""

    def __init__(self, world: WarmWorld) -> None:
        self.world = world

    def queue(
        self, org: str, *names: str, labels: Sequence[str] = LABELS, seconds: float = UNTIL_TOLD
    ) -> Sequence[Job]:
        specs = [JobSpec(labels=list(labels), duration=seconds, name=name) for name in names]
        return self.world.github.queue_run(self.world.repositories[org], specs).jobs

    def running(self, org: str) -> list[Job]:
        jobs = self.world.github.jobs.jobs.values()
        return [job for job in jobs if job.status == "in_progress" and job.repository.owner.login == org]


@asynccontextmanager
async def dashboard_runners(
    api: ApiServer, url: str, orgs: Sequence[str], **settings: Any
) -> AsyncIterator[DashboardRunners]:
    """Webhooks reach the server under `url`; it shows what the manager does."""
    world = WarmWorld(orgs)
    async with world.serving():
        replica = WarmReplica(world, api.store, 1, api)
        hooks = world.add_hooks(f"{url}/webhooks/github", SECRET)
        usual: dict[str, Any] = {"instance": "test", "tick_seconds": 0.2, "profiles": (profile(warm=0),)}
        async with replica.running(ManagerSettings(**{**usual, **settings}), hooks):
            yield DashboardRunners(world)
