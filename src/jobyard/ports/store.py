"""The store port: small enough to keep in the head, cut at lifecycle verbs.

Common to all verbs:
- a verb is atomic: it happens wholly or, when it raises, not at all;
- the store's clock decides what is due and what has expired, never the caller's;
- before a verb looks at the line it lets the jobs whose time has come join it, ordered by (run_at, sequence);
- verbs may be called from any thread that runs an event loop, on the handle given by `twin()` there;
- cancelling the caller never undoes half a verb: it may still take effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from jobyard.domain.explain import Standing
from jobyard.domain.instant import Instant
from jobyard.domain.job import Job, LogLine, NewJob, Progress, QueueSettings, State, Step
from jobyard.domain.lease import Ended, Lease, LeaseKey
from jobyard.domain.schedule import Verdict
from jobyard.domain.state import Settlement
from jobyard.ports.records import Entry, Record, Records
from jobyard.ports.timekeeping import (
    Armed,
    Decided,
    Decision,
    Tick,
    TickInfo,
    Timekeeping,
    WorkerInfo,
)

__all__ = [
    "CLOCK_SET_BACK",
    "Action",
    "Armed",
    "Changed",
    "Decided",
    "Decision",
    "Entry",
    "Exchange",
    "Extended",
    "Filter",
    "Finding",
    "GroupInfo",
    "HotPath",
    "Inserted",
    "Level",
    "Migration",
    "Page",
    "People",
    "QueueInfo",
    "Record",
    "Records",
    "Report",
    "Store",
    "Tick",
    "TickInfo",
    "Timekeeping",
    "Verdict",
    "WorkerInfo",
]


class Inserted(msgspec.Struct, frozen=True, gc=False):
    """`created` is False when a unique key was already held: `id` is then the holder's."""

    id: str
    created: bool
    sequence: int  # 0 when not created


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one exchange. Revisions number the exchanges and other changes of the line in commit order."""

    refused: tuple[LeaseKey, ...] = ()  # settlements whose token no longer held
    leases: tuple[Lease, ...] = ()
    cancelled: tuple[tuple[LeaseKey, str], ...] = ()  # held by this worker, asked to stop, with the reason
    next_due_at: Instant | None = None  # when the next waiting job becomes due by itself
    revision: int = 0
    now: Instant = 0


class Extended(msgspec.Struct, frozen=True, kw_only=True):
    lost: tuple[LeaseKey, ...] = ()
    cancelled: tuple[tuple[LeaseKey, str], ...] = ()


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a running attempt tells: any of the three."""

    key: LeaseKey
    progress: Progress | None = None
    lines: tuple[LogLine, ...] = ()
    step: Step | None = None


class HotPath(Protocol):
    async def insert(self, jobs: Sequence[NewJob], transaction: Any = None) -> list[Inserted]:
        """Store all jobs, or none.

        Must assign ascending sequences in the given order. A held unique key is no error: that job is not inserted
        and the holder's id is answered. Raises QueueFull, with nothing inserted, when a queue or group would hold
        more PENDING jobs than its settings allow. Creates unknown queues with default settings. With `transaction`
        (the caller's own database transaction) the jobs appear when the caller commits; a store that has no such
        thing raises NotPossible.
        """
        ...

    async def exchange(
        self,
        worker: str,
        settlements: Sequence[Settlement],
        queues: Sequence[str],
        wanted: int,
        lease_seconds: float,
        until: asyncio.Future[None] | None = None,
    ) -> Exchange:
        """Settle what finished, then claim up to `wanted` jobs of `queues` under the admission rule, in one trip.

        A settlement is applied only if its token still holds the lease; others are answered as refused and change
        nothing. Slots freed by the settlements are free for the claim. Leases are answered in the order in which
        single claims would have given them. Running counts move in the same atomic step.

        With `until`, an exchange that settles nothing and finds nothing waits: it answers once it has claimed
        something, soon after `until` is done, and otherwise as `wait_for_work` would; it may answer with nothing too
        early. Once `until` is done it claims nothing more than what is already on its way.
        """
        ...

    async def settle(self, settlement: Settlement, transaction: Any) -> None:
        """Settle one job inside the caller's own database transaction: it counts when, and only if, that commits.

        Raises LeaseLost when the token no longer holds: the caller should roll back. A store that has no such
        transactions raises NotPossible.
        """
        ...

    async def extend(
        self, worker: str, keys: Sequence[LeaseKey], lease_seconds: float, *, unseen: bool = False
    ) -> Extended:
        """Renew leases from the store's now; must answer which are lost, and which jobs were asked to stop.

        With `unseen`, the worker's other leases are renewed too, if they began within UNSEEN_SECONDS: an answer that
        gave it some may be on its way. Older ones are those of an answer that was lost, and must run out.
        """
        ...

    async def report(self, reports: Sequence[Report]) -> tuple[LeaseKey, ...]:
        """Record progress, log lines and steps of running attempts; answers the keys that no longer hold (refused)."""
        ...

    async def reclaim(self, limit: int = 1000) -> list[Ended]:
        """End leases that have run out, by `domain.state.bury`; a handed-off job has no lease to run out."""
        ...

    async def wait_for_work(self, queues: Sequence[str], timeout_seconds: float) -> bool:
        """Return True as soon as a job of `queues` may be claimable or a cancel was asked, False after the time.

        May return True too often, must never sleep through work that another process inserted.
        """
        ...

    async def wait_for_end(self, job_id: str, timeout_seconds: float) -> Job | None:
        """The job once it is final; None after the time. Raises JobNotFound if it is, or goes, missing."""
        ...

    async def adopt(self, job: NewJob, worker: str, external_id: str) -> Lease:
        """Enter a job that was found running outside: RUNNING and handed off, also beyond any limit."""
        ...

    async def signal(self, job_id: str, name: str, data: bytes = b"null") -> bool:
        """Wake the job if it is parked on `name`; else remember the signal for its next Park on that name.

        Answers whether it woke. Raises JobNotFound, or NotPossible when the job is final.
        """
        ...


# Jobs are created in the order of their sequences, but for a clock that was set back by no more than this.
CLOCK_SET_BACK = 3_600_000


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """All conditions must hold; None means any. Newest first.

    `text` is a part of the payload's JSON text as it is stored, where ASCII letters match in either case.
    """

    ids: tuple[str, ...] | None = None
    queue: str | None = None
    group: str | None = None
    kind: str | None = None
    states: tuple[State, ...] | None = None
    tag: str | None = None
    unique_key: str | None = None
    text: str | None = None
    created_after: Instant | None = None  # that very millisecond included
    created_before: Instant | None = None  # that very millisecond not included

    def needle(self) -> bytes:
        """The text as it is looked for; what UTF-8 cannot hold is in no payload.

        >>> Filter(text="Zoë").needle().decode()
        'zoë'
        """
        return (self.text or "").encode("utf-8", "surrogatepass").lower()

    def is_past(self, created_at: Instant) -> bool:
        """Whether whatever was inserted before a job of that time is too old, too."""
        return self.created_after is not None and created_at < self.created_after - CLOCK_SET_BACK

    def fits(self, created_at: Instant, payload: bytes) -> bool:
        """The conditions that no index answers."""
        return (
            (self.created_after is None or created_at >= self.created_after)
            and (self.created_before is None or created_at < self.created_before)
            and (self.text is None or self.needle() in payload.lower())
        )


class Page(msgspec.Struct, frozen=True):
    """A page may be short, even empty, and still have a cursor: the store looked at enough rows for one call."""

    jobs: tuple[Job, ...]
    cursor: str | None


class Action(StrEnum):
    CANCEL = "cancel"  # PENDING ends now; RUNNING is asked to stop, durably
    RETRY = "retry"  # FAILED, TIMEOUT, CANCELLED: due now, attempts and deaths from zero, errors kept, place kept
    DELETE = "delete"  # anything but RUNNING
    PRIORITISE = "prioritise"  # PENDING
    RUN_NOW = "run_now"  # PENDING and not due: due now


class Changed(msgspec.Struct, frozen=True):
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]  # found, but in a state (or with a unique key taken) that does not allow it


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    settings: QueueSettings
    paused: bool
    waiting: int  # PENDING and due
    delayed: int  # PENDING and not due, parked included
    running: int
    completed: int
    failed: int  # FAILED and TIMEOUT: the dead letters
    cancelled: int


class GroupInfo(msgspec.Struct, frozen=True, kw_only=True):
    queue: str
    name: str | None
    limit: int | None  # its own limit, if set
    effective_limit: int | None
    paused: bool
    waiting: int
    delayed: int
    running: int


class QueueAges(msgspec.Struct, frozen=True, kw_only=True):
    queue: str
    waiting_since: Instant | None = None  # when the job that waits longest came, or became due; None: none waits
    running_since: Instant | None = None  # when the job that runs longest was started


# A look at the ages of a queue's jobs goes along so many places where the next job may stand.
PLACES_LOOKED_AT = 1000


class People(Protocol):
    async def get(self, job_id: str) -> Job | None: ...

    async def find(self, where: Filter, limit: int = 50, cursor: str | None = None) -> Page:
        """Jobs by descending sequence, without their log lines, steps and tracebacks. Cost is bounded per call."""
        ...

    async def change(self, action: Action, job_ids: Sequence[str], *, reason: str = "", priority: int = 0) -> Changed:
        """Apply the action to each job; those it does not fit stay as they are and are answered as unchanged.

        Ids that do not exist are in neither list.
        """
        ...

    async def configure(self, queue: str, settings: QueueSettings) -> None:
        """Create the queue or replace its settings; takes effect with the next claim."""
        ...

    async def set_paused(self, queue: str, group: str | None, paused: bool) -> None:
        """Pause or resume a whole queue (group None) or one group."""
        ...

    async def set_limit(self, queue: str, group: str, limit: int | None) -> None:
        """Give a group its own limit, or take it away (None). Never stops what already runs."""
        ...

    async def queues(self) -> list[QueueInfo]:
        """All queues by name, with counts that cost the same however many jobs there are."""
        ...

    async def ages(self) -> list[QueueAges]:
        """All queues by name, and since when the oldest of their due and of their running jobs are there.

        Looks at the first job of each priority in each group, at PLACES_LOOKED_AT of them; its cost does not grow with
        the jobs behind those.
        """
        ...

    async def groups(self, queue: str, limit: int = 1000, after: str | None = None) -> list[GroupInfo]:
        """Groups of a queue that have jobs, a limit or a pause, by name; the jobs without a group first."""
        ...

    async def standing(self, job_id: str) -> Standing:
        """The facts for `domain.explain`, from one snapshot. Raises JobNotFound."""
        ...

    async def prune(self, limit: int = 1000) -> int:
        """Remove at most `limit` finished jobs beyond each queue's retention, oldest first; answers how many."""
        ...

    async def audit(self) -> list[str]:
        """Count everything again and answer each disagreement as a sentence; an empty list is proof."""
        ...


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(msgspec.Struct, frozen=True):
    """What a look at the engine found, for a person: cause and cure."""

    level: Level
    what: str
    says: str
    cure: str = ""


class Migration(msgspec.Struct, frozen=True):
    number: int
    name: str
    text: str  # what is executed, as a person may do by hand
    applied: bool


class Store(HotPath, People, Timekeeping, Records, Protocol):
    url: str  # as given, without secrets
    has_transactions: bool  # whether insert and settle can join the caller's own
    is_apart: bool  # it works in another process: it pays to have the next exchange there before this one is answered

    async def open(self) -> None:
        """Connect and bring the schema up to date; safe from several processes at once, and twice."""
        ...

    async def close(self) -> None:
        """Finish what was handed in, then let go; safe twice."""
        ...

    async def examine(self) -> list[Finding]:
        """What an operator should know about the engine below: reachable, writable, safe, with room to go on.

        Raises StoreError only when the engine cannot be asked at all.
        """
        ...

    async def migrations(self) -> list[Migration]:
        """Every numbered change of the schema, in order, and whether it is there; changes nothing, needs no `open`."""
        ...

    def twin(self) -> Store:
        """A handle for another thread's event loop; `self` where the store does not mind."""
        ...
