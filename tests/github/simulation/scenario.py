"""A scenario drawn from a seed: organizations, limits, jobs, faults and crashes."""

from __future__ import annotations

import random
from enum import StrEnum

import msgspec

from jobyard.demo.fake_github import Faults as GitHubFaults
from jobyard.demo.fake_kubernetes import ApiFault, PodFaults
from jobyard.demo.fake_kubernetes import Faults as KubernetesFaults
from jobyard.demo.fake_kubernetes.faults import FaultKind
from jobyard.domain.runners.profile import RunnerProfile, RunnerTimeouts
from jobyard.domain.runners.settings import ManagerSettings

UNTIL_CALLED = 3600.0
LABELS = ("code-linux", "code-gpu")
TIMEOUTS = RunnerTimeouts(
    minted=20,
    unschedulable=30,
    image_error=20,
    starting=40,
    not_online=40,
    idle=40,
    ended=20,
    terminating=20,
    warm=1800,
)


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    org: str
    labels: tuple[str, ...]
    durations: tuple[float, ...]
    max_parallel: int | None = None
    gate_seconds: float | None = None  # the jobs wait for an approval that comes after this
    cancelled_after: float | None = None


class Effect(StrEnum):
    """What becomes of the call at which a replica crashes."""

    NONE = "none"
    DONE = "done"  # it takes effect, and its response is lost
    LATE = "late"  # it arrives a while after the replica has died


class Crash(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    calls: int  # that the replica still makes, until it crashes at the next one
    effect: Effect = Effect.NONE
    within_seconds: float  # it crashes after this time, if it makes no such call


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    orgs: tuple[str, ...]
    settings: ManagerSettings
    runs: tuple[PlannedRun, ...] = ()
    github_faults: GitHubFaults = msgspec.field(default_factory=GitHubFaults)
    kubernetes_faults: KubernetesFaults = msgspec.field(default_factory=KubernetesFaults)
    replicas: int = 1
    crashes: tuple[Crash, ...] = ()
    wipes: tuple[float, ...] = ()
    quota: int | None = None
    lost_configurations: float = 0.0  # the share of responses to warm runners that get lost

    @property
    def is_calm(self) -> bool:
        """Nothing goes wrong, so that the order can be checked exactly."""
        return self.faults == "none"

    faults: str = "none"


REQUEST_FAULTS: tuple[FaultKind, ...] = (
    "fail_before",
    "fail_after",
    "lost_before",
    "lost_after",
    "hang_after",
    "slow",
    "throttle",
)
VIEW_FAULTS: tuple[FaultKind, ...] = ("gone", "cut", "empty_list", "stale_list")
KINDS = ("none", "webhooks", "api", "pods", "crashes", "wipe", "everything")


def draw(seed: int, kind: str | None = None) -> Scenario:
    rng = random.Random(seed)
    faults = kind or rng.choice(KINDS)
    orgs = tuple("abcd"[: rng.randint(1, 4)])
    warm = random.Random(seed + 7)  # apart, so that all else of a seed stays the same
    own = {org: rng.randint(1, 4) for org in orgs if rng.random() < 0.4}
    profiles = tuple(
        RunnerProfile(
            name=label.removeprefix("code-"),
            labels=("self-hosted", label),
            image="runner:1",
            timeouts=TIMEOUTS,
            max_running=rng.choice((None, None, 2)),
            warm=warm.choice((0, 0, 1, 2)),
        )
        for label in LABELS[: rng.randint(1, 2)]
    )
    settings = ManagerSettings(
        profiles=profiles,
        max_total=rng.randint(2, 8),
        max_per_org=rng.randint(1, 4),
        org_limits=own,
        instance="sim",
        warm_url="http://manager",
        organizations=orgs,
    )
    has = {kind: faults in (kind, "everything") for kind in KINDS}
    return Scenario(
        seed=seed,
        orgs=orgs,
        settings=settings,
        runs=tuple(_run(rng, orgs, profiles, calm=faults == "none") for _ in range(rng.choice((1, 1, 2, 2, 3, 6)))),
        github_faults=_github_faults(rng, webhooks=has["webhooks"], api=has["api"]),
        kubernetes_faults=_kubernetes_faults(rng, api=has["api"], pods=has["pods"], wipe=has["wipe"]),
        replicas=1 if faults == "none" else rng.randint(1, 2),
        crashes=tuple(_crash(rng, wipe=has["wipe"]) for _ in range(rng.randint(1, 4) if has["crashes"] else 0)),
        wipes=(rng.uniform(10, 80),) if has["wipe"] else (),
        quota=rng.randint(1, 4) if has["api"] and rng.random() < 0.3 else None,
        lost_configurations=warm.choice((0.0, 0.3)) if has["api"] else 0.0,
        faults=faults,
    )


def with_crash(calls: int, effect: Effect) -> Scenario:
    """Four jobs, of which one gets a warm runner; the manager crashes once, at the chosen call."""
    profile = RunnerProfile(name="linux", labels=("code-linux",), image="runner:1", timeouts=TIMEOUTS, warm=1)
    return Scenario(
        seed=1,
        orgs=("a", "b"),
        settings=ManagerSettings(
            profiles=(profile,),
            max_total=3,
            max_per_org=2,
            instance="sim",
            warm_url="http://manager",
            organizations=("a", "b"),
        ),
        runs=(
            PlannedRun(at=0.0, org="a", labels=profile.labels, durations=(5.0, 5.0, 5.0)),
            PlannedRun(at=1.0, org="b", labels=profile.labels, durations=(5.0,)),
        ),
        crashes=(Crash(at=0.0, calls=calls, effect=effect, within_seconds=UNTIL_CALLED),),
        faults="crashes",
    )


def _run(rng: random.Random, orgs: tuple[str, ...], profiles: tuple[RunnerProfile, ...], *, calm: bool) -> PlannedRun:
    label = rng.choice(profiles).labels[-1]
    return PlannedRun(
        at=rng.choice((0.0, rng.uniform(0, 40))),
        org=rng.choice(orgs),
        labels=rng.choice(((label,), ("self-hosted", label.upper()))),
        durations=tuple(rng.uniform(1, 30) for _ in range(rng.randint(1, 5))),
        max_parallel=None if calm or rng.random() < 0.8 else 1,
        gate_seconds=None if calm or rng.random() < 0.8 else rng.uniform(1, 40),
        cancelled_after=None if calm or rng.random() < 0.8 else rng.uniform(0, 30),
    )


def _crash(rng: random.Random, *, wipe: bool) -> Crash:
    # With an empty store nothing is known of a pod that a dead replica has requested and that is not there yet.
    effects = (Effect.NONE, Effect.DONE) if wipe else tuple(Effect)
    return Crash(
        at=rng.uniform(0, 80),
        calls=rng.randint(0, 60),
        effect=rng.choice(effects),
        within_seconds=rng.uniform(1, 30),
    )


def _github_faults(rng: random.Random, *, webhooks: bool, api: bool) -> GitHubFaults:
    faults = GitHubFaults()
    if webhooks:
        for name in ("dropped", "failed", "duplicated", "delayed", "reordered"):
            setattr(faults, f"webhook_{name}", rng.choice((0.0, 0.1, 0.4)))
        faults.organization_omitted = rng.choice((0.0, 0.5))
    if api:
        for name in ("lost_before", "lost_after", "server_error", "server_error_after", "slow", "hanging"):
            setattr(faults, name, rng.choice((0.0, 0.02, 0.15)))
        faults.secondary_limit = rng.choice((0.0, 0.05))
        faults.zombie = rng.choice((0.0, 0.3))
        faults.long_busy = rng.choice((0.0, 0.5))
    return faults


def _kubernetes_faults(rng: random.Random, *, api: bool, pods: bool, wipe: bool) -> KubernetesFaults:
    faults = KubernetesFaults()
    if api:
        for kind in REQUEST_FAULTS:
            if rng.random() < 0.4:
                faults.api.append(ApiFault(kind=kind, probability=rng.choice((0.02, 0.1))))
        # With an empty store the pods are all that is known, so a list that lies could not be noticed.
        for kind in VIEW_FAULTS if not wipe else ("gone", "cut"):
            if rng.random() < 0.4:
                faults.api.append(ApiFault(kind=kind, probability=0.2))
    if pods:
        faults.pods = PodFaults(
            unschedulable=rng.choice((0.0, 0.2)),
            unschedulable_seconds=60.0,
            image_pull=rng.choice((0.0, 0.2)),
            image_pull_forever=rng.choice((0.0, 0.1)),
            oom_killed=rng.choice((0.0, 0.1)),
            evicted=rng.choice((0.0, 0.1)),
            deleted=rng.choice((0.0, 0.1)),
            node_lost=rng.choice((0.0, 0.05)),
            slow_start=rng.choice((0.0, 0.3)),
            exit_codes=rng.choice(({}, {0: 0.1}, {1: 0.1, 7: 0.05})),
        )
    return faults
