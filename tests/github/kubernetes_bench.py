"""A fake Kubernetes cluster, and launchers that talk to it over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support import eventually

from jobyard.demo.fake_kubernetes import ApiFault, FakeKubernetes
from jobyard.demo.fake_kubernetes.server import serve
from jobyard.domain.instant import Instant
from jobyard.domain.runners.profile import RunnerProfile
from jobyard.github.api import JitConfig
from jobyard.github.kubernetes import pod_view
from jobyard.github.kubernetes.client import KubernetesClient
from jobyard.github.kubernetes.credentials import FileCredentials, Value
from jobyard.github.kubernetes.kubeconfig import ClusterAccess
from jobyard.github.kubernetes.launcher import KubernetesLauncher
from jobyard.github.launcher import Instance, LaunchRequest, Phase
from jobyard.ports.clock import SystemClock

LINUX = RunnerProfile(name="linux", labels=("code-linux",), image="runner:1")
FAST = {"spec": {"terminationGracePeriodSeconds": 1}}


class ShiftedClock:
    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def now(self) -> Instant:
        return SystemClock().now() + round(self.ahead_seconds * 1000)


class Bench:
    """A fake cluster, and a launcher that talks to it."""

    def __init__(self, model: FakeKubernetes, url: str) -> None:
        self.model = model
        self.url = url
        self.changes: list[Instance] = []
        self.clock = ShiftedClock()
        self.launchers: list[KubernetesLauncher] = []
        self.launcher = self.make()

    def make(
        self, token: str = "", *, url: str = "", instance: str = "blue", timeout: float = 1.0, **more: Any
    ) -> KubernetesLauncher:
        credentials = FileCredentials(Value(token.encode() or None), Value(), Value())
        client = KubernetesClient(ClusterAccess(url or self.url, credentials, Value()), timeout_seconds=timeout)
        options: dict[str, Any] = {"namespace": "runners", "clock": self.clock, "watch_seconds": 30.0} | more
        self.launchers.append(KubernetesLauncher("default", client, instance=instance, **options))
        return self.launchers[-1]

    async def start(self) -> None:
        await self.launcher.start(self.changes.append)
        await eventually(lambda: self.launcher.instances() is not None)
        await eventually(lambda: self.model.open_watches == 1)

    def names(self) -> list[str] | None:
        found = self.launcher.instances()
        return None if found is None else sorted(each.name for each in found)

    def named(self, name: str) -> Instance | None:
        return next((each for each in self.launcher.instances() or () if each.name == name), None)

    async def in_phase(self, name: str, phase: Phase) -> Instance:
        found = await eventually(lambda: (each := self.named(name)) and each.phase is phase and each)
        assert isinstance(found, Instance)
        return found

    async def in_trouble(self, name: str) -> Instance:
        found = await eventually(lambda: (each := self.named(name)) and each.trouble and each)
        assert isinstance(found, Instance)
        return found

    async def until_tried(self, fault: ApiFault, times: int) -> None:
        """Wait until requests have met the fault that many times more."""
        assert fault.times is not None
        goal = fault.times - times
        await eventually(lambda: fault.times is not None and fault.times <= goal)

    def stored(self, plural: str) -> list[str]:
        return sorted(each["metadata"]["name"] for each in self.model.storage.all(plural, "runners"))

    def inject(self, kind: Any, verb: str, resource: str = "pods", times: int | None = 1, **more: Any) -> ApiFault:
        fault = ApiFault(kind=kind, verb=verb, resource=resource, times=times, **more)
        self.model.inject(fault)
        return fault

    async def launch(self, name: str = "r1", profile: RunnerProfile = LINUX) -> Instance:
        return await self.launcher.launch(request(name, profile))


def request(name: str, profile: RunnerProfile = LINUX) -> LaunchRequest:
    jit = JitConfig(runner_id=77, name=name, encoded="c2VjcmV0")
    return LaunchRequest(name=name, profile=profile, org_name="acme", ticket_id="t1", jit=jit, requested_job_id=12)


@asynccontextmanager
async def cluster(**options: Any) -> AsyncIterator[Bench]:
    model = FakeKubernetes(namespaces=("runners", "large"), **options)
    model.settings.garbage_collection_seconds = 0.05
    async with serve(model) as url:
        bench = Bench(model, url)
        try:
            yield bench
        finally:
            for launcher in bench.launchers:
                await launcher.stop()
    await model.close()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with cluster() as made:
        await made.start()
        yield made


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_view, "RESERVED_SECONDS", 0.3)
    monkeypatch.setattr(pod_view, "RESOLVE_EVERY_SECONDS", 0.05)
    monkeypatch.setattr(pod_view, "FIRST_WAIT_SECONDS", 0.02)
