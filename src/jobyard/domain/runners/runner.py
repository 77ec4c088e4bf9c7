"""Runners that the manager launches: their states, and when one has stayed in a state for too long."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.lease import LeaseKey
from jobyard.domain.runners.github_job import RunnerScope
from jobyard.domain.runners.profile import RunnerTimeouts


class RunnerState(StrEnum):
    MINTING = "minting"  # its registration with GitHub was requested, and may exist
    MINTED = "minted"  # registered, and not launched
    STARTING = "starting"  # launched, and its container does not run yet
    UNSCHEDULABLE = "unschedulable"  # no node has room
    IMAGE_ERROR = "image_error"  # its image cannot be pulled
    NOT_ONLINE = "not_online"  # its container runs, and GitHub has not seen it online
    IDLE = "idle"  # online, without a job
    BUSY = "busy"  # runs a job
    ENDED = "ended"  # its job has ended on GitHub, and its container still runs
    TERMINATING = "terminating"  # it was deleted, and is still there
    WARM = "warm"  # started without a registration, waiting for a job
    ASSIGNED = "assigned"  # a warm runner that was given a job, and has not got its configuration

    @property
    def is_spare(self) -> bool:
        """Whether it will take a job of its organization that is still queued."""
        return self in SPARE


SPARE = frozenset(
    {
        RunnerState.MINTING,
        RunnerState.MINTED,
        RunnerState.STARTING,
        RunnerState.UNSCHEDULABLE,
        RunnerState.IMAGE_ERROR,
        RunnerState.NOT_ONLINE,
        RunnerState.IDLE,
        RunnerState.ASSIGNED,
    }
)
# The ticket says whether such a launch is still wanted.
UNCONFIRMED = frozenset({RunnerState.MINTING, RunnerState.MINTED, RunnerState.ASSIGNED})


class Assignment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a warm runner is registered with when it requests its configuration."""

    group_id: int
    labels: tuple[str, ...]
    is_ready: bool = False  # its ticket was handed off, and the cluster knows its organization
    minting_at: Instant = 0  # a request for its configuration is being answered since then; 0: none
    mints: int = 0  # how often its registration was requested


class Runner(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A runner that was launched, or is being launched, by any replica of the manager."""

    name: str
    org_name: str = ""
    repository: str | None = None  # None: registered with the organization
    profile: str = ""
    cluster: str = "default"
    namespace: str = ""  # of the cluster, if it has them
    state: RunnerState = RunnerState.MINTING
    since: Instant = 0  # in this state
    reason: str = ""  # of the state, in one line
    ticket: LeaseKey | None = None  # the holder of this key settles the ticket
    runner_id: int | None = None  # on GitHub
    uid: str = ""  # of the pod
    requested_job_id: int | None = None  # the oldest queued job when it was launched
    job_id: int | None = None  # the job that it runs, from in_progress
    is_over: bool = False  # its end was logged and counted; what is left of it is being removed
    is_given_up: bool = False  # the cluster rejected it, so it never appears there
    is_annotated: bool = False  # its instance shows that job
    received_at: Instant = 0  # the webhook of the requested job
    planned_at: Instant = 0  # the ticket was claimed
    minted_at: Instant = 0
    created_at: Instant = 0
    running_at: Instant = 0
    online_at: Instant = 0
    busy_at: Instant = 0
    warm_token: str = ""  # SHA-256 of the token with which a warm runner identifies itself
    profile_digest: str = ""  # of the profile that a warm runner was started with
    assignment: Assignment | None = None

    @property
    def scope(self) -> RunnerScope:
        return RunnerScope(self.org_name, self.repository)

    @property
    def is_launched(self) -> bool:
        return self.state not in (RunnerState.MINTING, RunnerState.MINTED)

    @property
    def is_confirmed(self) -> bool:
        """Whether it counts by itself, without a claimed ticket."""
        return self.state not in UNCONFIRMED

    @property
    def is_unassigned(self) -> bool:
        """Whether it is a warm runner that never had an organization. The pool takes care of it."""
        return bool(self.warm_token) and not self.org_name

    @property
    def may_be_registered(self) -> bool:
        """Whether its registration was requested and no response arrived: it may exist now or later."""
        return self.runner_id is None and self.assignment is not None and self.assignment.mints > 0

    def to(self, state: RunnerState, at: Instant, reason: str = "") -> Runner:
        """The runner in another state; the same state keeps its time."""
        if state is self.state:
            return self if reason == self.reason else msgspec.structs.replace(self, reason=reason)
        return msgspec.structs.replace(self, state=state, since=at, reason=reason)


def timeout_of(state: RunnerState, timeouts: RunnerTimeouts) -> float:
    """How many seconds a runner may stay in the state."""
    match state:
        case RunnerState.MINTING | RunnerState.MINTED | RunnerState.ASSIGNED:
            return timeouts.minted
    limit: float = getattr(timeouts, state.value)
    return limit


def is_overdue(runner: Runner, timeouts: RunnerTimeouts, now: Instant) -> bool:
    """
    >>> runner = Runner(name="r", state=RunnerState.IDLE, since=1_000)
    >>> is_overdue(runner, RunnerTimeouts(idle=60), 60_999), is_overdue(runner, RunnerTimeouts(idle=60), 61_000)
    (False, True)
    """
    return now - runner.since >= timeout_of(runner.state, timeouts) * 1000
