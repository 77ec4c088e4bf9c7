"""One replica of the manager in the simulated world: webhook, worker of tickets and manager, until it crashes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from tests.github.simulation.boundary import Boundary, SimulatedHttp, SimulatedKubernetes, SimulatedStore
from tests.github.simulation.virtual_loop import VirtualClock, VirtualLoop, owner

from jobyard.demo.fake_github.api import RestApi
from jobyard.demo.fake_kubernetes import FakeKubernetes
from jobyard.domain.lease import Lease, LeaseKey
from jobyard.domain.runners.settings import ManagerSettings
from jobyard.domain.state import Settlement, judge
from jobyard.errors import LeaseLost
from jobyard.github.client import GitHubAccess, GitHubClient
from jobyard.github.kubernetes.launcher import KubernetesLauncher
from jobyard.github.manager import RunnerManager
from jobyard.github.tickets import QUEUE
from jobyard.github.warm_delivery import JitConfigResponse, WarmDelivery
from jobyard.github.webhook import is_signed, job_event, payload_of
from jobyard.ports.executor import ChildEnds
from jobyard.ports.store import Store

LEASE_SECONDS = 12.0
POLL_SECONDS = 8.0
SECRET = "s3cret"
NAMESPACE = "runners"


class SimulatedAttempt:
    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.is_stopping = False
        self.ends_itself = False
        self.child_ends: ChildEnds | None = None
        self.raised: BaseException | None = None

    async def report(self, **_: Any) -> None: ...
    async def complete(self, result: bytes, transaction: Any) -> None: ...


class Replica:
    """Built anew after each crash."""

    def __init__(
        self,
        name: str,
        rng: random.Random,
        loop: VirtualLoop,
        clock: VirtualClock,
        store: Store,
        settings: ManagerSettings,
        rest: RestApi,
        kubernetes: FakeKubernetes,
        access: GitHubAccess,
        on_claimed: Callable[[Lease], Any],
    ) -> None:
        self.name = name
        self._loop = loop
        self.boundary = Boundary(self.crash, rng)
        self.store: Any = SimulatedStore(store, self.boundary, loop)
        self.github = GitHubClient(access, http=SimulatedHttp(access, rest, self.boundary))
        api = SimulatedKubernetes(kubernetes, self.boundary)
        launcher = KubernetesLauncher(
            "default", api, instance="sim", namespace=NAMESPACE, profiles=settings.profiles, clock=clock
        )
        self.manager = RunnerManager(
            self.store, settings, self.github, {"default": launcher}, worker_id=name, clock=clock
        )
        self.warm = WarmDelivery(settings, self.manager.ingest, self.github, clock)
        self._clock = clock
        self._on_claimed = on_claimed
        self._leases: dict[LeaseKey, Lease] = {}
        self._wake = asyncio.Event()
        self.manager.ingest.on_received.append(lambda _: self._wake.set())

    @property
    def is_alive(self) -> bool:
        return not self.boundary.is_dead

    def start(self) -> None:
        token = owner.set(self)
        try:
            self._loop.create_task(self._run())
        finally:
            owner.reset(token)

    def crash(self) -> None:
        """As by SIGKILL: no task goes on, and no further call reaches anything; requests on their way arrive."""
        self.boundary.died.set()
        for task in list(self._loop.tasks.get(self, {})):
            if task is not asyncio.current_task():
                self._loop.call_soon(task.cancel)

    async def _run(self) -> None:
        await self.github.start()
        await self.manager.start()
        for each in (self._renew(), self._claim()):
            self._loop.create_task(each)

    async def receive(self, headers: Any, body: bytes) -> int:
        """A delivery of GitHub, as the route of the server handles it."""
        token = owner.set(self)
        try:
            return await self._loop.create_task(self._receive({k.lower(): v for k, v in headers.items()}, body))
        except asyncio.CancelledError:
            if not self.is_alive:
                return 502
            raise
        finally:
            owner.reset(token)

    async def _receive(self, headers: dict[str, str], body: bytes) -> int:
        if not is_signed(body, headers["x-hub-signature-256"], [SECRET]):
            return 401
        if headers["x-github-event"] == "workflow_job":
            event = job_event(payload_of(body, headers["content-type"]), await self.store.now())
            if event is not None:
                await self.manager.ingest.receive(event)
        return 200

    async def configuration(self, name: str, token: str) -> JitConfigResponse:
        """A request of a warm runner, as the route of the server handles it."""
        made = owner.set(self)
        try:
            return await self._loop.create_task(self.warm.deliver(name, token))
        except asyncio.CancelledError:
            if not self.is_alive:
                return JitConfigResponse(502)
            raise
        finally:
            owner.reset(made)

    # The worker: as jobyard.worker, with claims one by one so that their order can be checked

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(LEASE_SECONDS / 3)
            if self._leases:
                await self.store.extend(self.name, list(self._leases), LEASE_SECONDS)
            await self.store.reclaim()

    async def _claim(self) -> None:
        while True:
            exchange = await self.store.exchange(self.name, (), (QUEUE,), 1, LEASE_SECONDS)
            for lease in exchange.leases:
                await self._on_claimed(lease)
                self._leases[lease.key] = lease
                self._loop.create_task(self._attempt(lease))
            if exchange.leases:
                continue
            self._wake.clear()
            try:
                async with asyncio.timeout(POLL_SECONDS * random.random() + 0.01):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _attempt(self, lease: Lease) -> None:
        try:
            outcome = await self.manager.executor.perform(SimulatedAttempt(lease))
        except LeaseLost:
            self._leases.pop(lease.key, None)
            return
        transition = judge(lease, outcome, 0.5, self.name)
        await self.store.exchange(self.name, [Settlement(lease.key, transition)], (), 0, LEASE_SECONDS)
        self._leases.pop(lease.key, None)
        self._wake.set()
