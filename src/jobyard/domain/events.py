"""Events of workers and schedulers; observers turn them into logs, metrics and alerts."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import Ending, Progress, State
from jobyard.domain.lease import ExpiredLease, Lease
from jobyard.domain.schedule import Verdict


class JobStarted(msgspec.Struct, frozen=True):
    lease: Lease


class JobReported(msgspec.Struct, frozen=True):
    """The store recorded the progress of a running attempt."""

    lease: Lease
    progress: Progress


class JobSettled(msgspec.Struct, frozen=True):
    """The store settled an attempt; with `to` PENDING the job will run again."""

    lease: Lease
    to: State
    ending: Ending | None
    message: str | None
    seconds: float
    error_type: str | None = None
    raised: BaseException | None = None  # by the handler, if it ran in this process


class SettlementRefused(msgspec.Struct, frozen=True):
    """An attempt ended after its lease was lost, so the store refused its outcome."""

    lease: Lease
    to: State


class JobLeaseLost(msgspec.Struct, frozen=True):
    lease: Lease


class LeasesExpired(msgspec.Struct, frozen=True):
    """A worker stopped renewing its leases and this one reclaimed them."""

    worker: str
    leases: tuple[ExpiredLease, ...]


class StoreFailed(msgspec.Struct, frozen=True):
    doing: str
    error: Exception
    retry_in_seconds: float


class StoreRecovered(msgspec.Struct, frozen=True):
    away_seconds: float


class EventLoopBlocked(msgspec.Struct, frozen=True):
    """A handler blocks the event loop; leases are still renewed. Without a lease, no handler was found in the stack."""

    seconds: float
    lease: Lease | None = None
    stack: tuple[str, ...] = ()  # where the loop's thread stands, innermost call last


class RetentionCapReached(msgspec.Struct, frozen=True):
    """A queue has more finished jobs than `keep_at_most`: some were removed that their age would have kept."""

    queue: str
    removed: int  # since the last report
    keep_at_most: int


class ClockStepped(msgspec.Struct, frozen=True):
    """The store's clock was set, forwards or back; leases are still judged by elapsed time."""

    seconds: float


class WorkerStarted(msgspec.Struct, frozen=True):
    worker: str
    queues: tuple[str, ...]
    concurrency: int
    store: str  # its URL, without secrets


class WorkerQuiet(msgspec.Struct, frozen=True):
    """The worker received the command to claim no more jobs; running ones continue."""

    worker: str
    running: int


class WorkerMemoryHigh(msgspec.Struct, frozen=True):
    """The worker is near its memory limit, or above it, and will be replaced."""

    worker: str
    used_bytes: int
    limit_bytes: int
    running: int


class WorkerStopping(msgspec.Struct, frozen=True):
    worker: str
    running: int
    grace_seconds: float


class WorkerStopped(msgspec.Struct, frozen=True):
    worker: str
    handed_back: int


class SchedulerStarted(msgspec.Struct, frozen=True):
    scheduler: str
    schedules: int
    store: str  # its URL, without secrets


class SchedulerStopped(msgspec.Struct, frozen=True):
    scheduler: str


class TickDecided(msgspec.Struct, frozen=True):
    """The store decided a tick for this scheduler; when missed, `count` ticks in a row that end with it."""

    schedule: str
    at: Instant
    verdict: Verdict
    count: int
    job_id: str | None
    late_seconds: float


class TickDelayed(msgspec.Struct, frozen=True):
    """A tick is delayed because the queue or the group of its job is full."""

    schedule: str
    at: Instant
    queue: str


Event: TypeAlias = (
    JobStarted
    | JobReported
    | JobSettled
    | SettlementRefused
    | JobLeaseLost
    | LeasesExpired
    | StoreFailed
    | StoreRecovered
    | RetentionCapReached
    | EventLoopBlocked
    | ClockStepped
    | WorkerStarted
    | WorkerQuiet
    | WorkerMemoryHigh
    | WorkerStopping
    | WorkerStopped
    | SchedulerStarted
    | SchedulerStopped
    | TickDecided
    | TickDelayed
)
