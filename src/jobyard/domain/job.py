"""Jobs: as they are submitted, and as they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.retry import DEFAULT_BACKOFF, Backoff
from jobyard.errors import BadInput


class State(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"

    @property
    def is_final(self) -> bool:
        return self not in (State.PENDING, State.RUNNING)


class Ending(StrEnum):
    """How an attempt ended without success."""

    ERROR = "error"  # the handler raised
    TIMEOUT = "timeout"  # it exceeded its timeout
    LOST = "lost"  # its worker died or lost the lease
    QUARANTINED = "quarantined"  # its workers died too often
    CANCELLED = "cancelled"


class AttemptError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    attempt: int
    ending: Ending
    message: str
    at: Instant = 0  # the store's clock, filled in by the store
    type: str | None = None
    traceback: str | None = None
    worker: str | None = None

    @property
    def summary(self) -> str:
        """The message with the type of the exception: the text of a KeyError alone is only a key."""
        return error_summary(self.type, self.message)


def error_summary(type: str | None, message: str) -> str:
    """
    >>> error_summary("KeyError", "'x'"), error_summary("ValueError", "ValueError"), error_summary(None, "too slow")
    ("KeyError: 'x'", 'ValueError', 'too slow')
    """
    return message if type is None or type == message else f"{type}: {message}"


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    percent: float
    message: str = ""
    data: Any = None
    at: Instant = 0


class LogLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    message: str
    level: str = "info"
    at: Instant = 0


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A named step of an attempt; the last report of a name wins."""

    name: str
    status: str  # "running", "passed" or "failed"
    attempt: int = 1
    data: Any = None
    started_at: Instant = 0
    finished_at: Instant | None = None


class UniqueScope(StrEnum):
    ACTIVE = "active"  # until the job ends
    PERIOD = "period"  # for `period_seconds` after insertion
    FOREVER = "forever"


class Unique(msgspec.Struct, frozen=True):
    """At most one job with this key in its queue, within the scope."""

    key: str
    scope: UniqueScope = UniqueScope.ACTIVE
    period_seconds: float | None = None


class Parent(msgspec.Struct, frozen=True):
    """Where the end of a child job is delivered: an entry in the history of its parent."""

    job_id: str
    scope: str
    key: str
    depth: int = 1  # number of workflows above the child


class NewJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job to insert. At most one of `delay_seconds` (from the store's present time) and `run_at` is set."""

    id: str
    kind: str
    queue: str = "default"
    group: str | None = None
    priority: int = 0
    payload: bytes = b"{}"  # a JSON document
    private_payload: bytes | None = None  # never shown; erased when the job completes or is pruned
    max_attempts: int = 3
    timeout_seconds: float | None = None
    backoff: Backoff = DEFAULT_BACKOFF
    delay_seconds: float = 0.0
    run_at: Instant | None = None
    unique: Unique | None = None
    tags: tuple[str, ...] = ()
    is_workflow: bool = False  # it keeps a history, and ends its child jobs itself when it is cancelled
    parent: Parent | None = None  # a job with this id is then not an error: it is not inserted again

    def __post_init__(self) -> None:
        # One of the stores cannot hold NUL in text, so none takes it.
        if "\0" in self.id or "\0" in self.kind or "\0" in self.queue or (self.group and "\0" in self.group):
            raise _has_nul()
        if (self.tags and "\0" in "".join(self.tags)) or (self.unique is not None and "\0" in self.unique.key):
            raise _has_nul()


def _has_nul() -> BadInput:
    return BadInput("Cannot store this job: its id, kind, queue, group, unique key or a tag contains a NUL character.")


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that may be shown of a job."""

    id: str
    kind: str
    queue: str
    group: str | None
    priority: int
    payload: msgspec.Raw
    state: State
    attempt: int  # the running or last attempt; 0 before the first
    max_attempts: int
    deaths: int  # worker deaths while it ran
    timeout_seconds: float | None
    backoff: Backoff
    run_at: Instant
    sequence: int
    unique_key: str | None
    tags: tuple[str, ...]
    created_at: Instant
    started_at: Instant | None = None
    finished_at: Instant | None = None
    worker: str | None = None
    external_id: str | None = None  # handed off: a reconciler decides its outcome
    waiting_for: str | None = None  # parked: the signal it waits for
    cancel_requested: str | None = None  # RUNNING, with a request to stop for this reason
    progress: Progress | None = None
    result: msgspec.Raw | None = None
    reason: str | None = None  # why it was cancelled or failed, in one line
    errors: tuple[AttemptError, ...] = ()
    log: tuple[LogLine, ...] = ()
    steps: tuple[Step, ...] = ()
    parent_id: str | None = None  # of a child job; not in lists
    is_workflow: bool = False

    def payload_value(self) -> Mapping[str, Any]:
        value: Mapping[str, Any] = msgspec.json.decode(self.payload)
        return value


HOUR_SECONDS = 3600.0
DAY_SECONDS = 24 * HOUR_SECONDS
# A caller that waits sees the end of a job within a second: much less, also at the highest throughput.
SOON_SECONDS, SOON_AT_MOST = 60.0, 100_000


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and retention of a queue; None means no limit.

    A finished job is kept while it is one of the last `keep_completed` (or `keep_failed`), and besides these while it
    is younger than the age. The cap limits what the age keeps: beyond it the oldest go early, completed ones first.
    """

    max_running: int | None = None
    max_per_group: int | None = None
    max_waiting: int | None = None
    max_waiting_per_group: int | None = None
    keep_completed: int = 100
    keep_failed: int = 50
    keep_completed_seconds: float = HOUR_SECONDS
    keep_failed_seconds: float = 7 * DAY_SECONDS  # also of cancelled jobs
    keep_at_most: int = 100_000  # finished jobs; the last `keep_completed` and `keep_failed` stay in any case

    @property
    def removes_soon(self) -> bool:
        """Whether a job may be removed before a caller in another process has seen its end.

        Such a queue needs a list of the jobs that callers wait for; in all others their age keeps them.
        """
        return (
            min(self.keep_completed_seconds, self.keep_failed_seconds) < SOON_SECONDS
            or self.keep_at_most < SOON_AT_MOST
        )
