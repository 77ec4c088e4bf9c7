"""A job as the memory store keeps it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec

from jobyard.domain.history import HistoryEntry, Wake
from jobyard.domain.instant import Instant
from jobyard.domain.job import AttemptError, LogLine, NewJob, Progress, State, Step
from jobyard.domain.lease import LeaseKey
from jobyard.domain.state import CancelRequest
from jobyard.stores._shared.limits import MAX_LOG_LINES


@dataclass(slots=True)
class ActiveLease:
    token: str
    worker: str
    expires_at: Instant
    cancel_requested: str | None = None


@dataclass(slots=True)
class StoredJob:
    new: NewJob
    sequence: int
    created_at: Instant
    run_at: Instant
    priority: int
    private_payload: bytes | None
    state: State = State.PENDING
    is_in_line: bool = False  # PENDING and due; else PENDING and delayed
    used: int = 0  # attempts that counted
    deaths: int = 0
    lease: ActiveLease | None = None
    worker: str | None = None
    started_at: Instant | None = None
    finished_at: Instant | None = None
    external_id: str | None = None
    waiting_for: str | None = None
    cancel_carried: str | None = None  # a workflow that was to stop before its present attempt
    wake: tuple[Wake, ...] = ()
    progress: Progress | None = None
    result: bytes | None = None
    reason: str | None = None
    errors: list[AttemptError] = field(default_factory=list)
    log: deque[LogLine] = field(default_factory=lambda: deque(maxlen=MAX_LOG_LINES))
    steps: dict[str, Step] = field(default_factory=dict)
    signal: bytes | None = None  # delivered; given to each later attempt
    history: dict[tuple[str, str], HistoryEntry] = field(default_factory=dict)  # by scope and key, in order
    taken: set[tuple[str, str]] = field(default_factory=set)  # signals that a job which is not a workflow has taken

    @property
    def id(self) -> str:
        return self.new.id

    @property
    def position(self) -> tuple[int, int]:
        """Sort key within the group: highest priority, then lowest sequence."""
        return (-self.priority, self.sequence)

    @property
    def attempt(self) -> int:
        return self.used + 1 if self.state is State.RUNNING else self.used

    @property
    def is_parked(self) -> bool:
        return self.state is State.PENDING and self.waiting_for is not None

    @property
    def cancel_requested(self) -> str | None:
        return (self.lease and self.lease.cancel_requested) or self.cancel_carried

    @property
    def cancel_request(self) -> CancelRequest:
        requested = None if self.lease is None else self.lease.cancel_requested
        return CancelRequest(requested, self.cancel_carried, self.ends_itself)

    @property
    def ends_itself(self) -> bool:
        """Whether it is a workflow that has begun."""
        return self.new.is_workflow and any(scope == "" for scope, _ in self.history)

    def may_wake(self) -> bool:
        return any(sum(scope == wake.scope for scope, _ in self.history) >= wake.count for wake in self.wake)

    def lease_key(self) -> LeaseKey:
        assert self.lease is not None
        return LeaseKey(self.id, self.sequence, self.lease.token)

    def record(self, step: Step, now: Instant) -> None:
        """Add the step, or replace the one of the same name in its position; the store's clock stamps it."""
        known = self.steps.get(step.name)
        is_running = step.status == "running"
        self.steps[step.name] = msgspec.structs.replace(
            step,
            started_at=now if is_running or known is None else known.started_at,
            finished_at=None if is_running else now,
        )
