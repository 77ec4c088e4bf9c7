"""The schedule port of a store: ticks, each decided once, and the heartbeats of workers."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob
from jobyard.domain.schedule import Verdict
from jobyard.errors import BadInput

# The newest ticks of a schedule that are kept.
KEPT_TICKS = 100
# The clocks of a server and of its replacement may differ by this much.
CLOCK_TOLERANCE_MS = 1000


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """One due instant of a schedule, and the verdict on it.

    FIRED and LATE carry a job of the tick's queue; MISSED and SKIPPED have none. Every tick has a `queue`, because the
    ticks of a schedule are kept in the store of its queue.
    """

    schedule: str
    revision: int
    at: Instant
    queue: str
    verdict: Verdict
    job: NewJob | None = None
    first: Instant | None = None  # the tick stands for `count` instants from this one to `at`
    count: int = 1
    skip_if_held: bool = False  # when the job's unique key is held: SKIPPED, with the holder

    def __post_init__(self) -> None:
        if self.verdict.has_job != (self.job is not None):
            needs = "needs a job" if self.verdict.has_job else "cannot have a job"
            raise BadInput(f"A {self.verdict} tick {needs}.")
        if self.job is not None and self.job.queue != self.queue:
            raise BadInput(f'The tick belongs to queue "{self.queue}", but its job to queue "{self.job.queue}".')
        if self.count < 1 or self.since > self.at:
            raise BadInput(f"A tick cannot stand for {self.count} instants from {self.since} to {self.at}.")

    @property
    def since(self) -> Instant:
        """The first instant that the tick stands for."""
        return self.at if self.first is None else self.first


class Decision(StrEnum):
    MADE = "made"  # recorded, and its job inserted, if it has one and was not skipped
    KNOWN = "known"  # this instant, or a later one, was decided before
    STALE = "stale"  # the schedule is not armed, or with another revision
    HELD = "held"  # the job's unique key is held and the tick does not skip: nothing changed
    FULL = "full"  # the job's queue or group is full: nothing changed
    UNAVAILABLE = "unavailable"  # of several stores, that of its queue is unavailable: submit the tick again


class Decided(msgspec.Struct, frozen=True, gc=False):
    """The recorded `verdict` and `job_id`: None unless MADE. For a tick skipped because of a job, that job's id."""

    decision: Decision
    verdict: Verdict | None = None
    job_id: str | None = None


class TickInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    schedule: str
    at: Instant
    verdict: Verdict
    job_id: str | None  # of the inserted job, or of the job that made it skip
    first: Instant
    count: int
    decided_at: Instant


class ArmedSchedule(msgspec.Struct, frozen=True, gc=False):
    schedule: str
    revision: int
    decided_until: Instant  # only later instants are undecided; never decreases


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    host: str
    pid: int
    queues: tuple[str, ...]  # empty: all
    concurrency: int
    running: int = 0
    completed: int = 0
    started_at: Instant = 0
    seen_at: Instant = 0
    quiet: bool = False  # it claims no more jobs
    finished_per_minute: dict[str, int] = {}  # jobs finished in the last minute, by queue
    kinds: tuple[str, ...] | None = None  # that it has handlers for; None: not known
    memory_bytes: int = 0  # of the worker with its child processes; 0: not known
    cpu_seconds: float = 0.0  # the same; never decreases
    cpu_percent: float = 0.0  # the same, since the heartbeat before; 100 is one core

    def takes(self, queue: str) -> bool:
        return not self.quiet and (not self.queues or queue in self.queues)


def is_alive(seen_at: Instant, until: Instant, now: Instant) -> bool:
    """Whether a heartbeat counts; one from the future was sent before the clock was set back.

    >>> is_alive(1_000, 9_000, 8_999), is_alive(1_000, 9_000, 9_000), is_alive(60_000, 68_000, 8_000)
    (True, False, False)
    """
    return seen_at - CLOCK_TOLERANCE_MS <= now < until


class ScheduleStore(Protocol):
    async def now(self) -> Instant:
        """The store's clock."""

    async def arm(self, schedule: str, revision: int, since: Instant | None = None) -> bool:
        """From now on decide only ticks of this revision that are later than `since` and than the last decided one.

        With `since` None, later than the last decided one; for a schedule that was not armed, than the store's
        present time. Returns False and changes nothing when it is armed with a later revision. Safe twice.
        """

    async def disarm(self, schedule: str, revision: int | None = None) -> bool:
        """Decide no more ticks and forget the decided ones; returns whether the schedule was armed.

        With `revision`, returns False and changes nothing when it is armed with a later one: a late removal must not
        end a new schedule of the same name.
        """

    async def armed(self, limit: int = 1000, after: str | None = None) -> list[ArmedSchedule]:
        """The armed schedules, by name; only names after `after`."""

    async def decide(self, ticks: Sequence[Tick]) -> list[Decided]:
        """Decide each tick in the given order, exactly once: it is recorded and its job inserted in one step.

        For each tick the first of these that applies:
        - its schedule is not armed, or with another revision: STALE;
        - it is not later than `decided_until`: KNOWN, so the same tick twice in one call is MADE and KNOWN;
        - an earlier tick of its schedule in this call was HELD or FULL: the same, so that it is not passed over;
        - it has a job whose unique key is held, also by a job of this call: SKIPPED with the holder's id if it
          `skip_if_held`, else HELD;
        - it has a job for which `insert` would raise QueueFull, counting the jobs of this call: FULL;
        - else it is MADE: recorded, its job inserted as `insert` does, and `decided_until` is its instant.

        Raises BadInput, with nothing decided, when a job that would be inserted has an existing id. Must keep the
        newest KEPT_TICKS records of a schedule; a thousand ticks are one round trip.
        """

    async def ticks(self, schedule: str, limit: int = 50, before: Instant | None = None) -> list[TickInfo]:
        """The decided ticks, newest first; with `before`, only earlier ones."""

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        """List the worker as alive for `seconds`, or until its next heartbeat; 0 takes it off the list."""

    async def workers(self) -> list[WorkerInfo]:
        """The live workers (whose heartbeat has not expired), by id."""
