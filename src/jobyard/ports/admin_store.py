"""The admin port of a store, for operators: find, change, configure, prune, audit."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from jobyard.domain.explain import JobPosition
from jobyard.domain.instant import Instant
from jobyard.domain.job import Job, QueueSettings, State
from jobyard.domain.payload_path import has_values, needle_of

# Creation times ascend with the sequences, except for a clock that was set back by at most this, in milliseconds.
CLOCK_SET_BACK = 3_600_000


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on jobs: all must hold, and None matches any. Results are newest first.

    `text` is a substring of the payload's stored JSON; ASCII letters match in either case. Each of `payload` is a path
    and a value: `user.id:42` matches `{"user": {"id": 42}}`, and `"42"` too. An index answers everything but these two,
    which are looked for in a bounded stretch of jobs per call.
    """

    ids: tuple[str, ...] | None = None
    queue: str | None = None
    group: str | None = None
    kind: str | None = None
    states: tuple[State, ...] | None = None
    tag: str | None = None
    unique_key: str | None = None
    text: str | None = None
    payload: tuple[str, ...] = ()
    created_after: Instant | None = None  # inclusive
    created_before: Instant | None = None  # exclusive

    @property
    def searches(self) -> bool:
        """Whether payloads must be read."""
        return self.text is not None or bool(self.payload)

    def needle(self) -> bytes:
        """Bytes in lower case that every payload that matches contains; a store may skip payloads without them."""
        return needle_of(self.payload[0]) if self.text is None and self.payload else self.text_bytes()

    def text_bytes(self) -> bytes:
        """`text` as bytes in lower case, for the search; text that UTF-8 cannot hold matches no payload.

        >>> Filter(text="Zoë").text_bytes().decode()
        'zoë'
        """
        return (self.text or "").encode("utf-8", "surrogatepass").lower()

    def ends_at(self, created_at: Instant) -> bool:
        """Whether all jobs before one of that creation time are too old, so that a search may end there."""
        return self.created_after is not None and created_at < self.created_after - CLOCK_SET_BACK

    def matches(self, created_at: Instant, payload: bytes) -> bool:
        """Whether a job meets the conditions that no index answers."""
        return (
            (self.created_after is None or created_at >= self.created_after)
            and (self.created_before is None or created_at < self.created_before)
            and (self.text is None or self.text_bytes() in payload.lower())
            and (not self.payload or has_values(payload, self.payload))
        )


class Page(msgspec.Struct, frozen=True):
    """A page of jobs. It may be short, even empty, and still have a cursor: the rows read per call are bounded."""

    jobs: tuple[Job, ...]
    cursor: str | None


class Action(StrEnum):
    CANCEL = "cancel"  # PENDING ends now; RUNNING gets a durable request to stop
    RETRY = "retry"  # FAILED, TIMEOUT, CANCELLED: due now, attempts and deaths from zero; errors and sequence stay
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
    removed_by_cap: int = 0  # finished jobs that keep_at_most removed although their age would have kept them
    removed_by_cap_at: Instant | None = None  # the last time; None: never
    # Not known to a store; `operations.queue_settings` adds them.
    settings_origin: str | None = None  # "default", "declared", or "operator" if any was changed
    declared_settings: QueueSettings | None = None  # None: not declared


class GroupInfo(msgspec.Struct, frozen=True, kw_only=True):
    queue: str
    name: str | None
    limit: int | None  # its own limit, if set
    effective_limit: int | None
    paused: bool
    waiting: int
    delayed: int
    running: int


class GroupsInLine(msgspec.Struct, frozen=True):
    """The front of a queue's line of groups."""

    groups: tuple[GroupInfo, ...]  # front first
    total: int  # groups in line


class QueueAges(msgspec.Struct, frozen=True, kw_only=True):
    queue: str
    waiting_since: Instant | None = None  # when the oldest waiting job was inserted or became due; None: none waits
    running_since: Instant | None = None  # when the longest running job was started


# Reading the ages scans at most this many heads of a queue's lines.
MAX_HEADS_SCANNED = 1000


class JobAdminStore(Protocol):
    async def get(self, job_id: str) -> Job | None: ...

    async def find(self, where: Filter, limit: int = 50, cursor: str | None = None) -> Page:
        """Jobs by descending sequence, without their log lines, steps, tracebacks and parents.

        The cost is bounded per call.
        """

    async def change(
        self,
        action: Action,
        job_ids: Sequence[str],
        *,
        reason: str = "",
        priority: int = 0,
        unless_requested: bool = False,
    ) -> Changed:
        """Apply the action to each job; jobs whose state does not allow it are returned as unchanged.

        A workflow that has begun (see `WorkflowStore`) ends itself: CANCEL of a PENDING one makes it due, with the
        request in `Job.cancel_requested` and in its next lease; a second CANCEL ends it at once. When a RUNNING one
        goes back to PENDING, its request stays with it. With `unless_requested`, CANCEL leaves jobs unchanged that have
        a request: others than an operator may ask the same workflow to stop, and must not end it at once.

        A workflow that has begun cannot be deleted before it is final, nor before its end is forgotten (see
        `WorkflowStore.ended_jobs`): its history tells which child jobs are left to cancel.

        Ids that do not exist are in neither list.
        """

    async def prune(self, limit: int = 1000) -> int:
        """Remove at most `limit` finished jobs beyond each queue's retention, oldest first, and return how many.

        The rule is in `QueueSettings`. A workflow that cannot be deleted yet stays, and so does a job for whose end a
        caller waits (`wait_for_end`), also in another process, until that wait is over. What the cap removes is
        counted in the queue's `removed_by_cap`. The cost does not grow with the number of jobs that are kept.
        """


class QueueStore(Protocol):
    async def configure(self, queue: str, settings: QueueSettings) -> None:
        """Create the queue or replace its settings; takes effect with the next claim."""

    async def set_paused(self, queue: str, group: str | None, paused: bool) -> None:
        """Pause or resume a whole queue (group None) or one group."""

    async def set_limit(self, queue: str, group: str, limit: int | None) -> None:
        """Set a group's own limit, or remove it (None). Running jobs are never stopped."""

    async def remove_queue(self, queue: str) -> bool:
        """Remove a queue with its settings, limits, pauses and unique keys; whether it existed.

        Raises NotPossible while it has jobs, finished ones included.
        """

    async def queues(self) -> list[QueueInfo]:
        """All queues by name; the cost of the counts does not grow with the number of jobs."""

    async def ages(self) -> list[QueueAges]:
        """All queues by name, with the times of their oldest due and oldest running jobs.

        Reads the first job of each priority in each group, at most MAX_HEADS_SCANNED; the cost does not grow with the
        jobs behind those.
        """

    async def groups(self, queue: str, limit: int = 1000, after: str | None = None) -> list[GroupInfo]:
        """Groups of a queue that have jobs, a limit or a pause, by name; jobs without a group come first."""

    async def line(self, queue: str, limit: int = 100) -> GroupsInLine:
        """The groups with due jobs, in the order in which a free slot is offered to them.

        A group that a limit or a pause holds back keeps its place. Jobs without a group are the group None.
        """

    async def position(self, job_id: str) -> JobPosition:
        """The facts for `domain.explain`, from one snapshot. Raises JobNotFound."""


class AdminStore(JobAdminStore, QueueStore, Protocol):
    async def audit(self) -> list[str]:
        """Recount everything and describe each inconsistency; an empty list proves consistency."""

    async def repair(self) -> list[str]:
        """Rebuild stored counts, and places where the store keeps them apart, from the records of the jobs.

        Safe while workers run. Returns the inconsistencies that were repaired; `audit` then tells what is left.
        """
