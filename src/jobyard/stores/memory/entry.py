"""One job as the memory store keeps it, and the two faces it shows: to people and to workers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import AttemptError, Job, LogLine, NewJob, Progress, State, Step
from jobyard.domain.lease import Lease, LeaseKey

KEPT_LOG_LINES = 1000


@dataclass(slots=True)
class Hold:
    """Who runs the job, and until when it is believed."""

    token: str
    worker: str
    expires_at: Instant


@dataclass(slots=True)
class Entry:
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
    hold: Hold | None = None
    worker: str | None = None
    started_at: Instant | None = None
    finished_at: Instant | None = None
    external_id: str | None = None
    waiting_for: str | None = None
    cancel_requested: str | None = None
    progress: Progress | None = None
    result: bytes | None = None
    reason: str | None = None
    errors: list[AttemptError] = field(default_factory=list)
    log: deque[LogLine] = field(default_factory=lambda: deque(maxlen=KEPT_LOG_LINES))
    steps: dict[str, Step] = field(default_factory=dict)
    signal: bytes | None = None  # delivered, handed to each later attempt
    remembered: dict[str, bytes] = field(default_factory=dict)  # signals that came before their Park

    @property
    def id(self) -> str:
        return self.new.id

    @property
    def place(self) -> tuple[int, int]:
        """Within the group: highest priority, then lowest sequence."""
        return (-self.priority, self.sequence)

    @property
    def attempt(self) -> int:
        return self.used + 1 if self.state is State.RUNNING else self.used

    @property
    def is_parked(self) -> bool:
        return self.state is State.PENDING and self.waiting_for is not None

    def is_held_by(self, key: LeaseKey) -> bool:
        return self.hold is not None and self.hold.token == key.token and self.sequence == key.sequence

    def key(self) -> LeaseKey:
        assert self.hold is not None
        return LeaseKey(self.id, self.sequence, self.hold.token)

    def record(self, step: Step, now: Instant) -> None:
        """The last word about a name wins, in the place of the first, timed by the store's clock."""
        known = self.steps.get(step.name)
        is_running = step.status == "running"
        self.steps[step.name] = msgspec.structs.replace(
            step,
            started_at=now if is_running or known is None else known.started_at,
            finished_at=None if is_running else now,
        )

    def lease(self) -> Lease:
        assert self.hold is not None
        return Lease(
            job_id=self.id,
            sequence=self.sequence,
            token=self.hold.token,
            kind=self.new.kind,
            queue=self.new.queue,
            group=self.new.group,
            priority=self.priority,
            attempt=self.attempt,
            max_attempts=self.new.max_attempts,
            deaths=self.deaths,
            payload=self.new.payload,
            private_payload=self.private_payload,
            timeout_seconds=self.new.timeout_seconds,
            backoff=self.new.backoff,
            signal=self.signal,
        )

    def job(self) -> Job:
        """Everything a person may see."""
        return self._seen(tuple(self.errors), tuple(self.log), tuple(self.steps.values()))

    def row(self) -> Job:
        """What a list shows: no log lines, no steps, no tracebacks."""
        return self._seen(tuple(msgspec.structs.replace(error, traceback=None) for error in self.errors), (), ())

    def _seen(self, errors: tuple[AttemptError, ...], log: tuple[LogLine, ...], steps: tuple[Step, ...]) -> Job:
        return Job(
            id=self.id,
            kind=self.new.kind,
            queue=self.new.queue,
            group=self.new.group,
            priority=self.priority,
            payload=msgspec.Raw(self.new.payload),
            state=self.state,
            attempt=self.attempt,
            max_attempts=self.new.max_attempts,
            deaths=self.deaths,
            timeout_seconds=self.new.timeout_seconds,
            backoff=self.new.backoff,
            run_at=self.run_at,
            sequence=self.sequence,
            unique_key=self.new.unique.key if self.new.unique else None,
            tags=self.new.tags,
            created_at=self.created_at,
            started_at=self.started_at,
            finished_at=self.finished_at,
            worker=self.worker,
            external_id=self.external_id,
            waiting_for=self.waiting_for,
            cancel_requested=self.cancel_requested,
            progress=self.progress,
            result=None if self.result is None else msgspec.Raw(self.result),
            reason=self.reason,
            errors=errors,
            log=log,
            steps=steps,
        )
