"""A GitHub Enterprise Server and a cluster on this machine, both fakes, for the demo of the runner manager."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from jobyard.demo.fake_github import FakeGitHub, JobSpec, Repository
from jobyard.demo.fake_github.server import serve as serve_github
from jobyard.demo.fake_kubernetes import ContainerEnvironment, FakeKubernetes, Faults, PodPlan
from jobyard.demo.fake_kubernetes.server import serve as serve_kubernetes
from jobyard.demo.runner_program import run_job

NAMESPACE = "runners"
CLUSTER_TOKEN = "demo"  # noqa: S105  # of the fake cluster
LABELS = ("self-hosted", "code-linux")
FETCH_SECONDS = 60.0
UNWANTED = (401, 403, 404, 410)


class RunnerWorld:
    """Organizations with one repository each. Runners take any queued job of theirs, as on the real GitHub."""

    def __init__(self, orgs: Sequence[str], *, seed: int = 1, start_seconds: float = 0.3) -> None:
        self.github = FakeGitHub(clock=time.time, rng=random.Random(seed))
        self.kubernetes = FakeKubernetes(
            rng=random.Random(seed),
            run_container=self._run_container,
            faults=Faults(plan=PodPlan(start_seconds=start_seconds)),
            namespaces=(NAMESPACE,),
        )
        self.github_url = self.kubernetes_url = ""
        self._orgs = orgs
        self._rng = random.Random(seed)
        self.repositories: dict[str, Repository] = {}
        self.token = ""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[RunnerWorld]:
        """Serve both over HTTP until the block ends."""
        async with serve_github(self.github) as self.github_url, serve_kubernetes(self.kubernetes) as url:
            self.kubernetes_url = url
            self.token = self.github.create_personal_token(["admin:org", "admin:org_hook", "repo"]).value
            for org in self._orgs:
                owner = self.github.create_organization(org)
                self.repositories[org] = self.github.create_repository(owner, "web")
            try:
                yield self
            finally:
                await self.kubernetes.close()

    def add_hooks(self, url: str, secret: str) -> dict[str, int]:
        """A webhook for each organization; returns their ids."""
        owners = {org: repository.owner for org, repository in self.repositories.items()}
        return {org: self.github.create_organization_hook(owner, url, secret).id for org, owner in owners.items()}

    def queue_jobs(self, org: str, count: int, seconds: tuple[float, float]) -> None:
        """Queue workflow runs with that many jobs in all, of random durations within the bounds."""
        specs = [JobSpec(labels=LABELS, duration=self._rng.uniform(*seconds)) for _ in range(count)]
        for first in range(0, count, 10):
            self.github.queue_run(self.repositories[org], specs[first : first + 10])

    @property
    def unfinished(self) -> int:
        jobs = [job for run in self.github.jobs.runs.values() for job in run.jobs]
        return sum(job.status != "completed" for job in jobs)

    def write_configuration(self, folder: Path, hooks: Mapping[str, int], secret: str, **more: Any) -> Path:
        """A jobyard.yaml and a kubeconfig for a manager of this world. JSON is YAML, too."""
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_bytes(msgspec.json.encode(self._kubeconfig()))
        runners = {
            "github_url": self.github_url,
            "github_token": self.token,
            "webhook_secrets": [secret],
            "org_hooks": dict(hooks),
            "clusters": {"default": {"backend": "kubernetes", "kubeconfig": str(kubeconfig), "namespace": NAMESPACE}},
            "profiles": [{"name": "linux", "labels": list(LABELS), "image": "runner:demo"}],
            **more,
        }
        file = folder / "jobyard.yaml"
        file.write_bytes(msgspec.json.format(msgspec.json.encode({"runners": runners})))
        file.chmod(0o600)
        return file

    def _kubeconfig(self) -> dict[str, Any]:
        context = {"cluster": "demo", "user": "demo", "namespace": NAMESPACE}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "demo", "cluster": {"server": self.kubernetes_url}}],
            "users": [{"name": "demo", "user": {"token": CLUSTER_TOKEN}}],
            "contexts": [{"name": "demo", "context": context}],
            "current-context": "demo",
        }

    async def _run_container(self, pod: dict[str, Any], environment: ContainerEnvironment) -> int:
        return await run_job(self.github, environment, lambda: self.fetch_configuration(environment))

    async def fetch_configuration(self, environment: Mapping[str, str]) -> str | None:
        """Ask until there is a configuration, as the entry script of warm runners does; None: it is not wanted."""
        headers = {"Authorization": f"Bearer {environment['JOBYARD_WARM_TOKEN']}"}
        async with httpx2.AsyncClient(headers=headers, timeout=FETCH_SECONDS) as client:
            while True:
                with contextlib.suppress(httpx2.HTTPError):
                    response = await client.post(environment["JOBYARD_WARM_URL"])
                    if response.status_code == 200:
                        return response.text
                    if response.status_code in UNWANTED:
                        return None
                await asyncio.sleep(1)
