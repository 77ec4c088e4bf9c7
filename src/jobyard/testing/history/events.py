"""What is written down: a question before each verb that changes something, its answer after it."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob, QueueSettings, State
from jobyard.domain.lease import ExpiredLease, Lease, LeaseKey
from jobyard.domain.state import Settlement
from jobyard.ports.admin_store import Action
from jobyard.ports.job_store import Inserted
from jobyard.ports.schedule_store import Decided, Tick


class Handed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as it was handed in, without what it carries."""

    id: str
    queue: str
    group: str | None = None
    priority: int = 0
    delay_seconds: float = 0.0
    run_at: Instant | None = None
    max_attempts: int = 3

    @classmethod
    def of(cls, job: NewJob) -> Handed:
        return cls(
            id=job.id,
            queue=job.queue,
            group=job.group,
            priority=job.priority,
            delay_seconds=job.delay_seconds,
            run_at=job.run_at,
            max_attempts=job.max_attempts,
        )


class Sent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A settlement as it was sent, without results and errors."""

    job_id: str
    token: str
    to: State
    counted: bool = True
    delay_seconds: float = 0.0
    signal: str | None = None
    park_seconds: float | None = None

    @classmethod
    def of(cls, settlement: Settlement) -> Sent:
        transition = settlement.transition
        return cls(
            job_id=settlement.key.job_id,
            token=settlement.key.token,
            to=transition.to,
            counted=transition.counted,
            delay_seconds=transition.delay_seconds,
            signal=transition.signal,
            park_seconds=transition.park_seconds,
        )


class Taken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A lease as it was given, without what the job carries."""

    job_id: str
    token: str
    queue: str
    group: str | None = None
    priority: int = 0
    sequence: int = 0
    attempt: int = 1
    max_attempts: int = 3
    deaths: int = 0

    @classmethod
    def of(cls, lease: Lease) -> Taken:
        return cls(
            job_id=lease.job_id,
            token=lease.token,
            queue=lease.queue,
            group=lease.group,
            priority=lease.priority,
            sequence=lease.sequence,
            attempt=lease.attempt,
            max_attempts=lease.max_attempts,
            deaths=lease.deaths,
        )


class AskInsert(msgspec.Struct, frozen=True, tag="insert"):
    jobs: tuple[Handed, ...]
    in_transaction: bool = False  # appears when the caller commits, if ever


class Due(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tick as it was handed in."""

    schedule: str
    at: Instant
    job: Handed | None = None

    @classmethod
    def of(cls, tick: Tick) -> Due:
        return cls(tick.schedule, tick.at, None if tick.job is None else Handed.of(tick.job))


class AskDecide(msgspec.Struct, frozen=True, tag="decide"):
    ticks: tuple[Due, ...]


class AskDisarm(msgspec.Struct, frozen=True, tag="disarm"):
    schedule: str


class AskExchange(msgspec.Struct, frozen=True, kw_only=True, tag="exchange"):
    worker: str
    settlements: tuple[Sent, ...] = ()
    queues: tuple[str, ...] = ()
    wanted: int = 0
    lease_seconds: float = 15.0


class AskExtend(msgspec.Struct, frozen=True, tag="extend"):
    keys: tuple[LeaseKey, ...]
    lease_seconds: float


class AskReport(msgspec.Struct, frozen=True, tag="report"):
    keys: tuple[LeaseKey, ...]


class AskReclaim(msgspec.Struct, frozen=True, tag="reclaim"):
    limit: int


class AskAdopt(msgspec.Struct, frozen=True, tag="adopt"):
    job: Handed


class AskSignal(msgspec.Struct, frozen=True, tag="signal"):
    job_id: str
    name: str


class AskChange(msgspec.Struct, frozen=True, tag="change"):
    action: Action
    job_ids: tuple[str, ...]
    priority: int = 0


class AskConfigure(msgspec.Struct, frozen=True, tag="configure"):
    queue: str
    settings: QueueSettings


class AskPause(msgspec.Struct, frozen=True, tag="pause"):
    queue: str
    group: str | None
    paused: bool


class AskLimit(msgspec.Struct, frozen=True, tag="limit"):
    queue: str
    group: str
    limit: int | None


Question: TypeAlias = (
    AskInsert
    | AskDecide
    | AskDisarm
    | AskExchange
    | AskExtend
    | AskReport
    | AskReclaim
    | AskAdopt
    | AskSignal
    | AskChange
    | AskConfigure
    | AskPause
    | AskLimit
)


class Stored(msgspec.Struct, frozen=True, tag="stored"):
    jobs: tuple[Inserted, ...]


class Judged(msgspec.Struct, frozen=True, tag="judged"):
    """The answer to decide."""

    decided: tuple[Decided, ...]


class Disarmed(msgspec.Struct, frozen=True, tag="disarmed"):
    was_armed: bool


class Exchanged(msgspec.Struct, frozen=True, kw_only=True, tag="exchanged"):
    revision: int
    now: Instant
    refused: tuple[LeaseKey, ...] = ()
    leases: tuple[Taken, ...] = ()


class Heard(msgspec.Struct, frozen=True, tag="heard"):
    """The answer to extend and report."""

    lost: tuple[LeaseKey, ...]


class Reclaimed(msgspec.Struct, frozen=True, tag="reclaimed"):
    ended: tuple[ExpiredLease, ...]


class Adopted(msgspec.Struct, frozen=True, tag="adopted"):
    lease: Taken


class Signalled(msgspec.Struct, frozen=True, tag="signalled"):
    woke: bool


class Altered(msgspec.Struct, frozen=True, tag="altered"):
    changed: tuple[str, ...]


class Accepted(msgspec.Struct, frozen=True, tag="accepted"):
    """Done, with nothing to tell."""


class Raised(msgspec.Struct, frozen=True, tag="raised"):
    """The verb raised. An error about the input promises that nothing happened; any other leaves it open."""

    error: str
    nothing_happened: bool


Answer: TypeAlias = (
    Stored | Judged | Disarmed | Exchanged | Heard | Reclaimed | Adopted | Signalled | Altered | Accepted | Raised
)


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """A process begins to write; calls are numbered from here."""

    process: int
    at: int  # nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share


class Asked(msgspec.Struct, frozen=True, tag="asked"):
    call: int
    at: int
    question: Question


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    call: int
    at: int
    answer: Answer


Line: TypeAlias = Opened | Asked | Answered
