"""The workflow port of a store: checkpoints, deliveries, and the ends of jobs that others wait for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from jobyard.domain.history import Delivery, EndedJob, HistoryEntry
from jobyard.domain.lease import LeaseKey


class Restart(msgspec.Struct, frozen=True):
    """Continue the job with another payload and without its history.

    Its signals stay, except those in `taken`: (scope, key).
    """

    payload: bytes
    taken: tuple[tuple[str, str], ...] = ()


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What a running workflow records. With `restart`, that comes first."""

    key: LeaseKey
    entries: tuple[HistoryEntry, ...] = ()
    restart: Restart | None = None


class WorkflowStore(Protocol):
    """Histories of jobs.

    A workflow is a job inserted with `is_workflow`, or that has recorded a checkpoint. It *has begun* once its history
    has an entry of scope "". A workflow that has begun is not cancelled by the store but by itself, because it may
    have child jobs to cancel and steps to undo: see `JobAdminStore.change` and `Lease.cancel_requested`.
    """

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[tuple[HistoryEntry, ...] | None]:
        """Record entries of running workflows, of scope "", as durably as a settlement.

        Each checkpoint is applied only if its token still holds the lease; None is returned for others, which change
        nothing. For each entry, the one that is stored under its key is returned: the first one written.
        The job's count of worker deaths starts again from zero, because it has made progress.
        """

    async def history(self, job_id: str, scope: str = "", *, after: int = 0, limit: int = 1000) -> list[HistoryEntry]:
        """Entries of one scope with numbers above `after`, ascending. Empty for a job that does not exist."""

    async def histories(self, wanted: Sequence[tuple[str, str]], limit: int = 1000) -> list[list[HistoryEntry]]:
        """The first entries of several jobs and scopes: of each (job id, scope) up to `limit`, as `history` does."""

    async def deliver(self, deliveries: Sequence[Delivery], ended: Sequence[str] = ()) -> None:
        """Write entries for jobs that are not COMPLETED; a second entry with a scope and key changes nothing.

        A job that is parked with a `Wake` that now holds becomes due. Deliveries for other jobs are ignored. A job that
        has failed or was cancelled may be retried, and must then know what has happened since. Then the ends of the
        jobs in `ended` are forgotten, as by `forget_ended`.
        """

    async def ended_jobs(self, limit: int = 1000) -> list[EndedJob]:
        """The oldest ends that were not forgotten: of every job with a parent, also when it is deleted, and of every
        workflow that has begun and ends in another state than COMPLETED.

        Of several ends of the same job (it was retried by hand) the first is kept until it is forgotten.
        """

    async def forget_ended(self, job_ids: Sequence[str]) -> None:
        """Remove ends that have been delivered."""
