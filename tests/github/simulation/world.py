"""The simulated world: GitHub, a cluster, a store and replicas of the manager, with the properties that must hold."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from tests.github.simulation.boundary import RealTimeStore
from tests.github.simulation.replica import NAMESPACE, SECRET, Replica
from tests.github.simulation.scenario import Crash, PlannedRun, Scenario
from tests.github.simulation.virtual_loop import VirtualClock, VirtualLoop

from jobyard.demo.fake_github import FakeGitHub, Hook, Job, JobSpec, Repository, Timings
from jobyard.demo.fake_github import Faults as GitHubFaults
from jobyard.demo.fake_github.api import RestApi
from jobyard.demo.fake_kubernetes import ContainerEnvironment, FakeKubernetes
from jobyard.demo.fake_kubernetes import Faults as KubernetesFaults
from jobyard.demo.fake_kubernetes.storage import Change
from jobyard.demo.runner_program import run_job
from jobyard.domain.lease import Lease
from jobyard.domain.runners.runner import RunnerState
from jobyard.github.client import GitHubAccess
from jobyard.github.job_records import GitHubJobs
from jobyard.github.kubernetes.labels import ORG
from jobyard.github.runner_records import RunnerRecords
from jobyard.github.tickets import QUEUE, Tickets
from jobyard.github.warm_delivery import GONE, NOT_FOUND, OK, UNAUTHORIZED
from jobyard.ports.store import Store

# How long faults go on after all that was planned has begun.
FAULTY_SECONDS = 60.0
# Everything must have come to rest this long after the last fault.
REST_SECONDS = 6 * 3600.0
STEP_SECONDS = 5.0
# A process that was killed is started again within this time.
RESTART_SECONDS = 20.0
# GitHub removes registrations that were never used after a time that it does not tell.
JIT_CONFIG_SECONDS = 600.0
HOST = "github.sim"


class World:
    def __init__(
        self, scenario: Scenario, open_store: Callable[[], Awaitable[Store]], store: Store, clock: VirtualClock
    ) -> None:
        self.scenario = scenario
        self._open_store = open_store
        self.clock = clock
        self.problems: list[str] = []
        self._rng = random.Random(scenario.seed + 1)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self._loop = loop
        self.store = self._in_real_time(store)
        self.github = FakeGitHub(
            clock=clock.seconds,
            rng=random.Random(scenario.seed + 2),
            deliver=self._deliver,
            faults=scenario.github_faults,
            timings=Timings(jit_config_lifetime=JIT_CONFIG_SECONDS),
            host=HOST,
        )
        self.kubernetes = FakeKubernetes(
            clock=clock.seconds,
            rng=random.Random(scenario.seed + 3),
            run_container=self._run_container,
            faults=scenario.kubernetes_faults,
            namespaces=(NAMESPACE,),
        )
        self.kubernetes.storage.subscribe("pods", self._pod_changed)
        self._rest = RestApi(self.github)
        token = self.github.create_personal_token(["admin:org", "admin:org_hook", "repo"])
        self.repositories: dict[str, Repository] = {}
        hooks: dict[str, int] = {}
        for org in scenario.orgs:
            owner = self.github.create_organization(org)
            self.repositories[org] = self.github.create_repository(owner, "web")
            hooks[org] = self.github.create_organization_hook(owner, "http://manager/webhooks/github", SECRET).id
        self._access = GitHubAccess(url=f"https://{HOST}", token=token.value, org_hooks=hooks)
        self.replicas: list[Replica] = []
        self._number = 0
        self._is_down = False  # while the store is being emptied
        self.limits = dict(scenario.settings.org_limits)  # of organizations, as they are now
        self.deliveries = 0  # of configurations to warm runners
        self._passed: Counter[tuple[str, str]] = Counter()
        self.launches: list[tuple[str, int]] = []  # organization and sequence of the ticket, as claimed

    # What happens

    async def run(self) -> list[str]:
        scenario = self.scenario
        await self.start()
        plans = [self._loop.create_task(self._queue(run)) for run in scenario.runs]
        plans += [self._loop.create_task(self._crash(crash)) for crash in scenario.crashes]
        plans += [self._loop.create_task(self._wipe(at)) for at in scenario.wipes]
        await asyncio.gather(*plans)
        if not scenario.is_calm:
            await self._is_at_rest_within(FAULTY_SECONDS)
        await self._heal()
        return await self.end()

    async def start(self) -> None:
        if self.scenario.quota is not None:
            await self._set_quota(self.scenario.quota)
        for _ in range(self.scenario.replicas):
            self._start_replica()

    async def end(self) -> list[str]:
        """Wait until everything has come to rest; the properties that did not hold."""
        await self._come_to_rest()
        for replica in self.replicas:
            replica.crash()
        await asyncio.sleep(1)
        self.github.close()
        await self.kubernetes.close()
        return self.problems

    def _start_replica(self) -> None:
        if self._is_down:
            return
        self._number += 1
        replica = Replica(
            f"manager-{self._number}",
            self._rng,
            self._loop,
            self.clock,
            self.store,
            self.scenario.settings,
            self._rest,
            self.kubernetes,
            self._access,
            self._claimed,
        )
        self.replicas.append(replica)
        replica.start()

    async def _queue(self, run: PlannedRun) -> None:
        await asyncio.sleep(run.at)
        environment = None if run.gate_seconds is None else "production"
        specs = [JobSpec(labels=run.labels, duration=each, environment=environment) for each in run.durations]
        made = self.github.queue_run(self.repositories[run.org], specs, max_parallel=run.max_parallel)
        if run.gate_seconds is not None:
            await asyncio.sleep(run.gate_seconds)
            for job in list(made.jobs):
                if job.status == "waiting":
                    self.github.approve(job)
        if run.cancelled_after is not None:
            await asyncio.sleep(run.cancelled_after)
            self.github.cancel(made)

    async def _crash(self, crash: Crash) -> None:
        await asyncio.sleep(crash.at)
        alive = [replica for replica in self.replicas if replica.is_alive]
        if alive:
            replica = self._rng.choice(alive)
            replica.boundary.effect = crash.effect
            replica.boundary.crash_at = replica.boundary.calls + crash.calls + 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(crash.within_seconds):
                    await replica.boundary.died.wait()
            replica.crash()
            await asyncio.sleep(self._rng.uniform(0, RESTART_SECONDS))
        self._start_replica()

    def _in_real_time(self, store: Store) -> Store:
        return cast("Store", RealTimeStore(store, self._loop))

    async def _wipe(self, at: float) -> None:
        """The store loses everything, and the manager restarts."""
        await asyncio.sleep(at)
        self._is_down = True
        for replica in self.replicas:
            replica.crash()
        await asyncio.sleep(1)  # longer than a slow request is under way
        self._loop.calls_in_flight += 1
        self.store = self._in_real_time(await self._open_store())
        self._loop.calls_in_flight -= 1
        self._is_down = False
        self._start_replica()

    async def _heal(self) -> None:
        """No more faults; one replica runs."""
        self.github.faults = GitHubFaults()
        self.kubernetes.faults = KubernetesFaults()
        if self.scenario.quota is not None:
            await self._set_quota(1000)
        for replica in self.replicas:
            replica.boundary.crash_at = None
        if not any(replica.is_alive for replica in self.replicas):
            self._start_replica()

    async def _set_quota(self, pods: int) -> None:
        spec = {"hard": {"pods": str(pods)}}
        body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "runners"}, "spec": spec}
        faults, self.kubernetes.faults = self.kubernetes.faults, KubernetesFaults()
        try:
            await self.kubernetes.create("resourcequotas", NAMESPACE, body)
        except Exception:
            await self.kubernetes.patch("resourcequotas", NAMESPACE, "runners", {"spec": spec})
        self.kubernetes.faults = faults

    async def _deliver(self, hook: Hook, headers: Mapping[str, str], body: bytes) -> int:
        alive = [replica for replica in self.replicas if replica.is_alive]
        return await self._rng.choice(alive).receive(headers, body) if alive else 503

    async def _run_container(self, pod: dict[str, Any], environment: ContainerEnvironment) -> int:
        return await run_job(self.github, environment, lambda: self._late_configuration(pod, environment))

    async def _late_configuration(self, pod: dict[str, Any], environment: ContainerEnvironment) -> str | None:
        """What warm_runner.sh does; None: the runner is not wanted."""
        name = pod["metadata"]["name"]
        assert environment["JOBYARD_WARM_URL"] == f"http://manager/runners/{name}/configuration"
        while True:
            alive = [replica for replica in self.replicas if replica.is_alive]
            if alive:
                replica = self._rng.choice(alive)
                delivery = await replica.configuration(name, environment["JOBYARD_WARM_TOKEN"])
                if delivery.status == OK and self._rng.random() >= self.scenario.lost_configurations:
                    self.deliveries += 1
                    return delivery.configuration
                if delivery.status in (UNAUTHORIZED, NOT_FOUND, GONE):
                    return None
            await asyncio.sleep(1)

    # What must hold

    def slots(self) -> list[dict[str, Any]]:
        pods = self.kubernetes.storage.all("pods")
        return [pod for pod in pods if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")]

    def _pod_changed(self, change: Change) -> None:
        """Check the limits when a pod appears or gets its organization: at no other time does a count grow."""
        if change.after is None or (change.before is not None and org_of(change.before) == org_of(change.after)):
            return
        settings = self.scenario.settings
        pods = self.slots()
        if len(pods) > settings.max_total:
            self._problem(f"{len(pods)} pods, and max_total is {settings.max_total}")
        for org, count in Counter(org_of(pod) for pod in pods).items():
            limit = self.limits.get(org, settings.max_per_org)
            if org and count > limit:
                self._problem(f"{count} pods of {org}, and its limit is {limit}")

    async def _claimed(self, lease: Lease) -> None:
        """Without faults, tickets of an organization are claimed in order, and no group is passed twice."""
        settings = self.scenario.settings
        has_gate = any(profile.max_running is not None or profile.warm for profile in settings.profiles)
        if not self.scenario.is_calm or has_gate:
            return
        org = lease.group or ""
        # A ticket that found no job for now looks again later, and has lost its turn.
        is_first = (org, lease.sequence) not in self.launches
        earlier = [sequence for each, sequence in self.launches if each == org]
        if is_first and earlier and lease.sequence < max(earlier) and lease.priority == 0:
            self._problem(f"ticket {lease.sequence} of {org} came after {max(earlier)}")
        self.launches.append((org, lease.sequence))
        for group in await self.store.groups(QUEUE):
            name = group.name or ""
            has_room = group.running < self.limits.get(name, settings.max_per_org)
            if name == org or not group.waiting or not has_room:
                self._passed.pop((name, org), None)
                continue
            self._passed[name, org] += 1
            if self._passed[name, org] > 2:
                self._problem(f"{name} has work and room, and {org} was served {self._passed[name, org]} times")
        for other, server in list(self._passed):
            if other == org:
                self._passed.pop((other, server))

    async def _come_to_rest(self) -> None:
        if not await self._is_at_rest_within(REST_SECONDS):
            for job in self._unfinished():
                self._problem(f"job {job.id} of {job.run.repository.full_name} is still {job.status}")
            self.problems += await self._leftovers()
        self.problems += [f"audit: {line}" for line in await self.store.audit()]

    async def _is_at_rest_within(self, seconds: float) -> bool:
        """Whether all jobs have ended and nothing is left of them, at the latest after this time."""
        for _ in range(int(seconds / STEP_SECONDS)):
            await asyncio.sleep(STEP_SECONDS)
            if not self._unfinished() and not await self._leftovers():
                return True
        return False

    def _unfinished(self) -> list[Job]:
        return [job for run in self.github.jobs.runs.values() for job in run.jobs if job.status != "completed"]

    async def _leftovers(self) -> list[str]:
        records = await RunnerRecords(self.store).all()
        warm = {runner.name: runner.profile for runner in records if runner.state is RunnerState.WARM}
        pods = [pod["metadata"]["name"] for pod in self.kubernetes.storage.all("pods")]
        secrets = [secret["metadata"]["name"] for secret in self.kubernetes.storage.all("secrets")]
        found = [f"pod {name} is left" for name in pods if name not in warm]
        found += [f"secret {name} is left" for name in secrets if name not in warm]
        found += [f"runner {runner.name} is registered" for runner in self.github.runners.all()]
        found += [f"record of runner {runner.name}" for runner in records if runner.name not in {*warm} & {*pods}]
        found += self._missing_warm(Counter(warm.values()))
        found += [f"ticket {job.id} is {job.state}" for job in await Tickets(self.store).live()]
        found += [f"job {job.job_id} is {job.state}" for job in await GitHubJobs(self.store, ()).active()]
        return found

    def _missing_warm(self, present: Counter[str]) -> list[str]:
        """At rest the pools are as large as configured, and as the limits allow."""
        settings = self.scenario.settings
        wanted = {
            profile.name: min(profile.warm, profile.warm if profile.max_running is None else profile.max_running)
            for profile in settings.profiles
        }
        if sum(wanted.values()) > settings.max_total:
            return [] if present.total() == settings.max_total else [f"warm runners: {present}"]
        return [] if present == Counter(wanted) else [f"warm runners: {present} instead of {wanted}"]

    def _problem(self, text: str) -> None:
        self.problems.append(f"at {self._loop.now:.1f} s: {text}")


def org_of(pod: dict[str, Any]) -> str:
    return str((pod["metadata"].get("labels") or {}).get(ORG, ""))
