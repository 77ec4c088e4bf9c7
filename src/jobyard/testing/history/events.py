"""Records of a history: each changing store call before it is made, and its result afterwards."""

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


class RecordedJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as it was inserted, without its payload."""

    id: str
    queue: str
    group: str | None = None
    priority: int = 0
    delay_seconds: float = 0.0
    run_at: Instant | None = None
    max_attempts: int = 3
    is_workflow: bool = False

    @classmethod
    def of(cls, job: NewJob) -> RecordedJob:
        return msgspec.convert(job, cls, from_attributes=True)


class RecordedSettlement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A settlement as it was sent, without results and errors."""

    job_id: str
    token: str
    to: State
    counted: bool = True
    delay_seconds: float = 0.0
    signal: str | None = None
    park_seconds: float | None = None

    @classmethod
    def of(cls, settlement: Settlement) -> RecordedSettlement:
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


class RecordedLease(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A lease as it was granted, without the payload."""

    job_id: str
    token: str
    queue: str
    group: str | None = None
    priority: int = 0
    sequence: int = 0
    attempt: int = 1
    max_attempts: int = 3
    deaths: int = 0
    is_workflow: bool = False

    @classmethod
    def of(cls, lease: Lease) -> RecordedLease:
        return msgspec.convert(lease, cls, from_attributes=True)


class RecordedInsert(msgspec.Struct, frozen=True, tag="insert"):
    jobs: tuple[RecordedJob, ...]
    in_transaction: bool = False  # the jobs appear if and when the caller commits


class RecordedTick(msgspec.Struct, frozen=True, omit_defaults=True):
    schedule: str
    at: Instant
    job: RecordedJob | None = None

    @classmethod
    def of(cls, tick: Tick) -> RecordedTick:
        return cls(tick.schedule, tick.at, None if tick.job is None else RecordedJob.of(tick.job))


class RecordedDecide(msgspec.Struct, frozen=True, tag="decide"):
    ticks: tuple[RecordedTick, ...]


class RecordedDisarm(msgspec.Struct, frozen=True, tag="disarm"):
    schedule: str


class RecordedExchange(msgspec.Struct, frozen=True, kw_only=True, tag="exchange"):
    worker: str
    settlements: tuple[RecordedSettlement, ...] = ()
    queues: tuple[str, ...] = ()
    wanted: int = 0
    lease_seconds: float = 15.0


class RecordedExtend(msgspec.Struct, frozen=True, tag="extend"):
    keys: tuple[LeaseKey, ...]
    lease_seconds: float


class RecordedReport(msgspec.Struct, frozen=True, tag="report"):
    keys: tuple[LeaseKey, ...]


class RecordedCheckpoint(msgspec.Struct, frozen=True, tag="checkpoint"):
    """Checkpoints of workflows; of two of the same attempt, both keys."""

    keys: tuple[LeaseKey, ...]


class RecordedDelivery(msgspec.Struct, frozen=True, tag="deliver"):
    job_ids: tuple[str, ...]


class RecordedReclaim(msgspec.Struct, frozen=True, tag="reclaim"):
    limit: int


class RecordedAdopt(msgspec.Struct, frozen=True, tag="adopt"):
    job: RecordedJob


class RecordedSignal(msgspec.Struct, frozen=True, tag="signal"):
    job_id: str
    name: str


class RecordedChange(msgspec.Struct, frozen=True, tag="change"):
    action: Action
    job_ids: tuple[str, ...]
    priority: int = 0


class RecordedConfigure(msgspec.Struct, frozen=True, tag="configure"):
    queue: str
    settings: QueueSettings


class RecordedPause(msgspec.Struct, frozen=True, tag="pause"):
    queue: str
    group: str | None
    paused: bool


class RecordedLimit(msgspec.Struct, frozen=True, tag="limit"):
    queue: str
    group: str
    limit: int | None


Request: TypeAlias = (
    RecordedInsert
    | RecordedDecide
    | RecordedDisarm
    | RecordedExchange
    | RecordedExtend
    | RecordedReport
    | RecordedCheckpoint
    | RecordedDelivery
    | RecordedReclaim
    | RecordedAdopt
    | RecordedSignal
    | RecordedChange
    | RecordedConfigure
    | RecordedPause
    | RecordedLimit
)


class InsertReturned(msgspec.Struct, frozen=True, tag="stored"):
    jobs: tuple[Inserted, ...]


class DecideReturned(msgspec.Struct, frozen=True, tag="judged"):
    decided: tuple[Decided, ...]


class DisarmReturned(msgspec.Struct, frozen=True, tag="disarmed"):
    was_armed: bool


class ExchangeReturned(msgspec.Struct, frozen=True, kw_only=True, tag="exchanged"):
    revision: int
    now: Instant
    refused: tuple[LeaseKey, ...] = ()
    leases: tuple[RecordedLease, ...] = ()


class LeasesReturned(msgspec.Struct, frozen=True, tag="heard"):
    """The result of extend, report and checkpoint."""

    lost: tuple[LeaseKey, ...]


class ReclaimReturned(msgspec.Struct, frozen=True, tag="reclaimed"):
    ended: tuple[ExpiredLease, ...]


class AdoptReturned(msgspec.Struct, frozen=True, tag="adopted"):
    lease: RecordedLease


class SignalReturned(msgspec.Struct, frozen=True, tag="signalled"):
    woke: bool


class ChangeReturned(msgspec.Struct, frozen=True, tag="altered"):
    changed: tuple[str, ...]


class NothingReturned(msgspec.Struct, frozen=True, tag="accepted"):
    """A call without a result."""


class RecordedError(msgspec.Struct, frozen=True, tag="raised"):
    """The call raised. After an error about the input nothing has changed; after any other, it is unknown."""

    error: str
    nothing_happened: bool


Response: TypeAlias = (
    InsertReturned
    | DecideReturned
    | DisarmReturned
    | ExchangeReturned
    | LeasesReturned
    | ReclaimReturned
    | AdoptReturned
    | SignalReturned
    | ChangeReturned
    | NothingReturned
    | RecordedError
)


class RecordingStarted(msgspec.Struct, frozen=True, tag="opened"):
    """A process started recording; its calls are numbered from here."""

    process: int
    at: int  # nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share


class RecordedCall(msgspec.Struct, frozen=True, tag="asked"):
    call: int
    at: int
    request: Request


class RecordedResult(msgspec.Struct, frozen=True, tag="answered"):
    call: int
    at: int
    response: Response


Line: TypeAlias = RecordingStarted | RecordedCall | RecordedResult
