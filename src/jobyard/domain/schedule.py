"""Schedules: which job is inserted when, and what happens to missed and overlapping ticks."""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob, State, Unique
from jobyard.domain.job_options import CheckedOptions
from jobyard.domain.retry import DEFAULT_BACKOFF, Backoff

# A tick that is decided within this time is on time.
GRACE_SECONDS = 30.0
DEFAULT_TIMEOUT_SECONDS = 300.0
MANAGED = "managed"
TAG = "schedule:"


class Verdict(StrEnum):
    FIRED = "fired"  # its job was inserted in time
    LATE = "late"  # its job was inserted after the grace time
    MISSED = "missed"  # no scheduler ran in time, and the policy skips it
    SKIPPED = "skipped"  # the job of an earlier tick had not ended

    @property
    def has_job(self) -> bool:
        return self in (Verdict.FIRED, Verdict.LATE)


class Overlap(StrEnum):
    """What happens to a tick while the job of an earlier one has not ended."""

    ALLOW = "allow"  # they run side by side
    SKIP = "skip"  # the tick is skipped
    QUEUE = "queue"  # the newest such tick waits until that job ends


class Missed(StrEnum):
    """What happens to ticks that no scheduler decided within the grace time."""

    SKIP = "skip"  # none is fired
    ONCE = "once"  # the newest is fired, unless a later one is on time
    ALL = "all"  # the newest `missed_limit` are fired, in order


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A schedule definition as it is stored. `revision` grows with every change that schedulers must see."""

    name: str
    expression: str
    kind: str
    timezone: str = "UTC"
    payload: msgspec.Raw = msgspec.Raw(b"{}")  # a JSON document
    queue: str = "default"
    group: str | None = None
    priority: int = 0
    max_retry: int = 3
    timeout_seconds: float | None = DEFAULT_TIMEOUT_SECONDS
    backoff: Backoff | None = None  # the handler's; None: the default
    tags: tuple[str, ...] = ()  # the handler's
    enabled: bool = True
    overlap: Overlap = Overlap.SKIP
    missed: Missed = Missed.ONCE
    missed_limit: int = 10  # of Missed.ALL
    jitter_seconds: float = 0.0
    start_at: Instant | None = None  # no instant before it
    end_at: Instant | None = None  # no instant after it
    origin: str = MANAGED  # or where it is declared: "file", "code:<app>"
    is_declared: bool = True  # False: its declaration has disappeared
    declared_enabled: bool = True  # as declared; an operator may have paused or resumed it since
    has_moved: bool = False  # its queue was changed: the job of an earlier tick may be in another one
    since: Instant = 0  # instants up to it are not due: the schedule did not exist, was paused, or had other times
    revision: int = 0
    created_at: Instant = 0
    changed_at: Instant = 0

    @property
    def is_managed(self) -> bool:
        return self.origin == MANAGED

    @property
    def unique_key(self) -> str:
        """What its unfinished job holds, unless overlaps are allowed."""
        return TAG + self.name

    def job(self, job_id: str, at: Instant | None = None) -> NewJob:
        """The job of the tick at `at`; without one, a job that is fired manually."""
        holds = at is not None and self.overlap is not Overlap.ALLOW
        options = CheckedOptions(
            queue=self.queue,
            group=self.group,
            priority=self.priority,
            max_attempts=self.max_retry + 1,
            timeout_seconds=self.timeout_seconds,
            backoff=self.backoff or DEFAULT_BACKOFF,
            run_at=None if at is None else at + self.jitter(at),
            unique=Unique(self.unique_key) if holds else None,
            tags=(TAG + self.name, *self.tags),
        )
        return options.new_job(job_id, self.kind, bytes(self.payload))

    def jitter(self, at: Instant) -> int:
        """Milliseconds from the tick until its job is due; deterministic.

        >>> Schedule(name="a", expression="@daily", kind="k").jitter(1_000)
        0
        >>> spread = Schedule(name="a", expression="@daily", kind="k", jitter_seconds=60)
        >>> spread.jitter(1_000) == spread.jitter(1_000), 0 <= spread.jitter(1_000) <= 60_000
        (True, True)
        """
        most = round(self.jitter_seconds * 1000)
        if most == 0:
            return 0
        roll = blake2b(f"{at} {self.name}".encode(), digest_size=8).digest()
        return int.from_bytes(roll) % (most + 1)


class PastTick(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the history of a schedule."""

    at: Instant
    verdict: Verdict
    job_id: str | None
    state: State | None  # of the job; None if there is none, or it was removed
    is_pruned: bool = False  # the job was removed by retention
    first: Instant  # of `count` instants in a row that were missed
    count: int
    decided_at: Instant
