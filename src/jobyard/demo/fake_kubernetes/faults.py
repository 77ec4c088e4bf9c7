"""Seeded faults: of API requests, and of pods."""

from __future__ import annotations

import random
from typing import Literal

import msgspec

FaultKind = Literal[
    "fail_before",
    "fail_after",
    "lost_before",
    "lost_after",
    "hang_before",
    "hang_after",
    "slow",
    "throttle",
    "gone",
    "cut",
    "silent",
    "empty_list",
    "stale_list",
]


class ApiFault(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One way in which requests go wrong.

    `fail_*` answers with `status_code`, `lost_*` closes the connection without a response, `hang_*` never answers;
    `_before` leaves the cluster unchanged, `_after` has committed the change. `slow` waits up to `seconds`; `throttle`
    is 429 with Retry-After `seconds`. `gone` is 410 for a watch or a continued list. After up to `seconds`, `cut` ends
    a watch in the middle of a line, and `silent` leaves it open but sends nothing more. `empty_list` and `stale_list`
    (up to `revisions` behind) falsify a list.
    """

    kind: FaultKind
    verb: str = "*"
    resource: str = "*"
    probability: float = 1.0
    # How often it may still happen; None means without end.
    times: int | None = None
    seconds: float = 1.0
    status_code: Literal[500, 503, 504] = 500
    revisions: int = 20

    def applies(self, verb: str, resource: str, rng: random.Random) -> bool:
        if self.times == 0 or self.verb not in {"*", verb} or self.resource not in {"*", resource}:
            return False
        if self.kind in {"empty_list", "stale_list"} and verb != "list":
            return False
        if self.kind in {"cut", "silent"} and verb != "watch":
            return False
        if self.kind == "gone" and verb not in {"list", "watch"}:
            return False
        if self.probability < 1.0 and rng.random() >= self.probability:
            return False
        if self.times is not None:
            self.times -= 1
        return True


class PodPlan(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What happens to one pod. Times are seconds from the preceding step; None means it does not happen."""

    schedule_seconds: float = 0.0
    # How long the scheduler finds no node; infinity means for ever.
    unschedulable_seconds: float | None = None
    node: str | None = None
    pull_seconds: float = 0.0
    # The number of image pulls that fail before one succeeds; -1 means all.
    pull_failures: int = 0
    invalid_image: bool = False
    start_seconds: float = 0.0
    # Replaces the injected container: it runs for `run_seconds` (None: until it is stopped) and exits with this code.
    exit_code: int | None = None
    run_seconds: float | None = None
    # From the start of the containers.
    oom_after: float | None = None
    killed_after: float | None = None
    evicted_after: float | None = None
    deleted_after: float | None = None
    node_lost_after: float | None = None
    # How long the node stays lost; None means for ever.
    node_lost_seconds: float | None = None
    # Only the container of this name is killed by `oom_after` and `killed_after`; None means the first.
    victim: str | None = None


class PodFaults(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Probabilities from which the plan of each new pod is drawn."""

    unschedulable: float = 0.0
    unschedulable_seconds: float = 60.0
    unschedulable_forever: float = 0.0
    image_pull: float = 0.0
    image_pull_forever: float = 0.0
    invalid_image: float = 0.0
    oom_killed: float = 0.0
    killed: float = 0.0
    evicted: float = 0.0
    deleted: float = 0.0
    node_lost: float = 0.0
    node_lost_seconds: float = 600.0
    # The upper bound of the time after which a running pod meets one of the five faults above.
    fault_within_seconds: float = 60.0
    slow_start: float = 0.0
    slow_start_seconds: float = 60.0
    # Exit codes that replace the container, with the probability of each.
    exit_codes: dict[int, float] = {}

    def draw(self, rng: random.Random, base: PodPlan) -> PodPlan:
        plan = msgspec.structs.replace(base)

        def happens(probability: float) -> bool:
            return probability > 0 and rng.random() < probability

        if happens(self.unschedulable_forever):
            plan.unschedulable_seconds = float("inf")
        elif happens(self.unschedulable):
            plan.unschedulable_seconds = rng.uniform(0, self.unschedulable_seconds)
        if happens(self.image_pull_forever):
            plan.pull_failures = -1
        elif happens(self.image_pull):
            plan.pull_failures = rng.randint(1, 3)
        if happens(self.invalid_image):
            plan.invalid_image = True
        if happens(self.slow_start):
            plan.start_seconds += rng.uniform(0, self.slow_start_seconds)
        for code, probability in self.exit_codes.items():
            if happens(probability):
                plan.exit_code, plan.run_seconds = code, rng.uniform(0, self.fault_within_seconds)
        self._draw_ends(rng, plan)
        return plan

    def _draw_ends(self, rng: random.Random, plan: PodPlan) -> None:
        ends = {
            "oom_after": self.oom_killed,
            "killed_after": self.killed,
            "evicted_after": self.evicted,
            "deleted_after": self.deleted,
            "node_lost_after": self.node_lost,
        }
        for name, probability in ends.items():
            if probability > 0 and rng.random() < probability:
                setattr(plan, name, rng.uniform(0, self.fault_within_seconds))
        if plan.node_lost_after is not None and self.node_lost:
            plan.node_lost_seconds = rng.uniform(0, self.node_lost_seconds)


class Faults(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Everything that may go wrong; nothing by default."""

    api: list[ApiFault] = []
    pods: PodFaults = msgspec.field(default_factory=PodFaults)
    # The plan from which `pods` draws deviations.
    plan: PodPlan = msgspec.field(default_factory=PodPlan)
    # Every watch event is delivered up to this much late, in order.
    watch_lag_seconds: float = 0.0

    def matching(self, verb: str, resource: str, rng: random.Random) -> list[ApiFault]:
        found = [fault for fault in self.api if fault.applies(verb, resource, rng)]
        self.api[:] = [fault for fault in self.api if fault.times != 0]
        return found
