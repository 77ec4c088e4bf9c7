"""The part of the store port that belongs to the clock: due instants, each decided once, and workers that are alive."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob
from jobyard.domain.schedule import Verdict
from jobyard.errors import BadInput

# So many of a schedule's ticks are remembered, the newest.
KEPT_TICKS = 100


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """One due instant of a schedule, and what should become of it.

    FIRED and LATE bring a job, of the tick's queue; MISSED and SKIPPED have none. `queue` is said for all of them: what
    became of a schedule's instants is kept in the store of its queue.
    """

    schedule: str
    revision: int
    at: Instant
    queue: str
    verdict: Verdict
    job: NewJob | None = None
    first: Instant | None = None  # it stands for `count` instants since this one, `at` being the last
    count: int = 1
    skip_if_held: bool = False  # when the job's unique key is held: SKIPPED, with the holder

    def __post_init__(self) -> None:
        if self.verdict.has_job != (self.job is not None):
            needs = "needs a job" if self.verdict.has_job else "has no job"
            raise BadInput(f"A tick that is {self.verdict} {needs}.")
        if self.job is not None and self.job.queue != self.queue:
            raise BadInput(f'The tick is of queue "{self.queue}", its job of queue "{self.job.queue}".')
        if self.count < 1 or self.since > self.at:
            raise BadInput(f"A tick cannot stand for {self.count} instants from {self.since} to {self.at}.")

    @property
    def since(self) -> Instant:
        """The first instant that it stands for."""
        return self.at if self.first is None else self.first


class Decision(StrEnum):
    MADE = "made"  # recorded, and its job inserted, if it has one and was not skipped
    KNOWN = "known"  # this instant, or a later one, was decided before
    STALE = "stale"  # the schedule is not armed, or with another revision
    HELD = "held"  # the job's unique key is held and the tick does not skip: nothing changed
    FULL = "full"  # the job's queue or group is full: nothing changed
    AWAY = "away"  # of several stores, that of its queue cannot be asked now: hand it in again


class Decided(msgspec.Struct, frozen=True, gc=False):
    """`verdict` and `job_id` are what was recorded: None unless MADE; the holder's id when it was skipped for one."""

    decision: Decision
    verdict: Verdict | None = None
    job_id: str | None = None


class TickInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    schedule: str
    at: Instant
    verdict: Verdict
    job_id: str | None  # the inserted job's, or the holder's when it was skipped for one
    first: Instant
    count: int
    decided_at: Instant


class Armed(msgspec.Struct, frozen=True, gc=False):
    schedule: str
    revision: int
    decided_until: Instant  # only later instants are still to be decided; never goes back


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
    quiet: bool = False  # it was told to take no more jobs
    finished_per_minute: dict[str, int] = {}  # jobs that it ended in the last minute, by queue

    def takes(self, queue: str) -> bool:
        return not self.quiet and (not self.queues or queue in self.queues)


class ScheduleStore(Protocol):
    async def now(self) -> Instant:
        """The store's clock."""
        ...

    async def arm(self, schedule: str, revision: int, since: Instant | None = None) -> bool:
        """From now on only ticks of this revision are decided, each later than `since` and than the last decided.

        `since` None means: than the last decided; for a schedule that was not armed, than the store's now. False,
        changing nothing, when it is armed with a later revision. Safe twice.
        """
        ...

    async def disarm(self, schedule: str, revision: int | None = None) -> bool:
        """No more ticks are decided, and those that were are forgotten; answers whether it was armed.

        With `revision`, False and changing nothing when it is armed with a later one: whoever removed a schedule and
        comes late must not end a new one of the same name.
        """
        ...

    async def armed(self, limit: int = 1000, after: str | None = None) -> list[Armed]:
        """By schedule."""
        ...

    async def decide(self, ticks: Sequence[Tick]) -> list[Decided]:
        """Decide each tick in the given order, once for ever: it is recorded and its job inserted in one step.

        For each tick the first of these that fits:
        - its schedule is not armed, or with another revision: STALE;
        - it is not later than `decided_until`: KNOWN, so the same tick twice in one call is MADE and KNOWN;
        - an earlier tick of its schedule in this call was HELD or FULL: the same, lest that one be passed over;
        - it has a job whose unique key is held, also by a job of this call: SKIPPED with the holder's id if it
          `skip_if_held`, else HELD;
        - it has a job for which `insert` would raise QueueFull, the jobs of this call counted: FULL;
        - else it is MADE: recorded, its job inserted as `insert` does, and `decided_until` is its instant.

        Raises BadInput, with nothing decided, when a job that would be inserted has an id that is taken. Must keep the
        newest KEPT_TICKS records of a schedule; a thousand ticks are one trip.
        """
        ...

    async def ticks(self, schedule: str, limit: int = 50, before: Instant | None = None) -> list[TickInfo]:
        """What was decided, newest first; with `before` only earlier instants."""
        ...

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        """The worker is alive and will say so again within `seconds`. `seconds` 0 takes it off the list."""
        ...

    async def workers(self) -> list[WorkerInfo]:
        """Workers whose beat has not run out, by id."""
        ...
