"""The job port of a store (the hot path): insert, claim, settle, renew, wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import Job, LogLine, NewJob, Progress, Step
from jobyard.domain.lease import ExpiredLease, Lease, LeaseKey
from jobyard.domain.state import Settlement


class Inserted(msgspec.Struct, frozen=True, gc=False):
    """`created` is False when a unique key was already held: `id` is then the holder's."""

    id: str
    created: bool
    sequence: int  # 0 when not created


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """The response to one exchange. Revisions number the changes of the queues in commit order."""

    refused: tuple[LeaseKey, ...] = ()  # settlements whose token no longer held
    leases: tuple[Lease, ...] = ()
    cancelled: tuple[tuple[LeaseKey, str], ...] = ()  # held by this worker and requested to stop, with the reason
    next_due_at: Instant | None = None  # when the next delayed job becomes due
    revision: int = 0
    now: Instant = 0


class Extended(msgspec.Struct, frozen=True, kw_only=True):
    lost: tuple[LeaseKey, ...] = ()
    cancelled: tuple[tuple[LeaseKey, str], ...] = ()


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A report of a running attempt: any of progress, log lines and a step."""

    key: LeaseKey
    progress: Progress | None = None
    lines: tuple[LogLine, ...] = ()
    step: Step | None = None


class LeaseStore(Protocol):
    """Leases of running jobs, and signals to parked ones."""

    async def extend(
        self, worker: str, keys: Sequence[LeaseKey], lease_seconds: float, *, unacknowledged: bool = False
    ) -> Extended:
        """Renew leases from the store's present time; must return which are lost, and which jobs should stop.

        With `unacknowledged`, the worker's other leases are renewed too, if they began within
        UNACKNOWLEDGED_SECONDS (before or after now, because the clock may have been set): the response that granted
        them may still be in flight. Others belong to a response that was lost, and must expire.
        """

    async def report(self, reports: Sequence[Report]) -> tuple[LeaseKey, ...]:
        """Record progress, log lines and steps of running attempts; returns the keys that were refused (lease lost)."""

    async def reclaim(
        self, limit: int = 1000, *, as_of: Instant | None = None, longest_seconds: float | None = None
    ) -> list[ExpiredLease]:
        """End expired leases, by `domain.state.judge_expired`. The lease of a handed-off job does not expire.

        With `as_of`, leases are judged by that instant if it is earlier than the store's present time: after the clock
        was set forwards, a lease has not expired only because of that. With `longest_seconds`, a lease that would end
        later than that from the store's present time was written before the clock was set back: it is shortened to end
        then.
        """

    async def adopt(self, job: NewJob, worker: str, external_id: str, token: str | None = None) -> Lease:
        """Insert a job that was found running outside: RUNNING and handed off, even beyond the limits.

        With `token` (16 hexadecimal digits) the lease has that one: a caller that wrote it down before can settle the
        job although the response was lost. Raises BadInput, with nothing changed, when a job has this id.
        """

    async def signal(self, job_id: str, name: str, data: bytes = b"null", *, signal_id: str | None = None) -> bool:
        """Wake the job if it is parked on `name`; otherwise keep the signal for its next Park on that name.

        Signals of a name are kept and taken in the order of arrival. One whose `signal_id` the job has received before
        under that name is ignored. The signals of a workflow are entries of its history, in `signal_scope(name)` with
        the `signal_id` (or a new one) as key, and it stays parked unless one of its `Wake`s holds.

        Returns whether it woke. Raises JobNotFound, or NotPossible when the job is final or already keeps MAX_SIGNALS
        signals of that name.
        """


class WaitStore(Protocol):
    """Waits for changes, also those of other processes."""

    async def wait_for_work(self, queues: Sequence[str], timeout_seconds: float) -> bool:
        """Return True as soon as a job of `queues` may be claimable or a cancel was requested, False after the timeout.

        May return True without work, but must never miss work that another process inserted.
        """

    async def wait_for_end(self, job_id: str, timeout_seconds: float) -> Job | None:
        """The job once it is final; None after the timeout. Raises JobNotFound if it does not exist or is removed."""


class JobStore(LeaseStore, WaitStore, Protocol):
    async def insert(self, jobs: Sequence[NewJob], transaction: Any = None) -> list[Inserted]:
        """Store all jobs, or none.

        Must assign ascending sequences in the given order. A held unique key is not an error: that job is not
        inserted and the holder's id is returned. Raises QueueFull, with nothing inserted, when a queue or group would
        hold more PENDING jobs than its settings allow. A job with a parent is not inserted again when its id exists:
        that id is returned with `created` False. Creates unknown queues with default settings. With `transaction`
        (the caller's own database transaction) the jobs appear when the caller commits; a store without such
        transactions raises NotPossible.
        """

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

        A settlement is applied only if its token still holds the lease; others are returned as refused and change
        nothing. A workflow that parks with a `Wake` that holds already becomes due at once. Slots freed by the
        settlements are free for the claim. Leases are returned in the order in which
        single claims would have granted them. Running counts move in the same atomic step.

        With `until`, an exchange that settles nothing and finds no job waits: it returns once it has claimed a job,
        soon after `until` is done, and otherwise as `wait_for_work` would; it may return early without a job. Once
        `until` is done, it claims no more jobs than those already in flight.
        """

    async def settle(self, settlement: Settlement, transaction: Any) -> None:
        """Settle one job inside the caller's own database transaction: it takes effect if and only if that commits.

        Raises LeaseLost when the token no longer holds the lease: the caller should roll back. A store without such
        transactions raises NotPossible.
        """
