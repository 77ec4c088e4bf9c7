"""Leases: a claim on a job with a token and an expiry. The token's holder may report and settle the attempt."""

from __future__ import annotations

import msgspec

from jobyard.domain.instant import FOREVER, Instant
from jobyard.domain.job import AttemptError, NewJob, Parent
from jobyard.domain.retry import Backoff

# The jobs of a killed worker run elsewhere within 15 s: this, one second until a worker reclaims, and a margin.
DEFAULT_LEASE_SECONDS = 12.0
# A job with this many worker deaths is quarantined, because it may be what kills them.
MAX_DEATHS = 3
# A response that granted leases counts as lost after this long, and its leases may expire.
UNACKNOWLEDGED_SECONDS = 30.0
# With three renewals per lease, two in a row may fail.
RENEWALS_PER_LEASE = 3


class Lease(msgspec.Struct, frozen=True, gc=False):
    """One attempt, as the worker that claimed it receives it."""

    job_id: str
    sequence: int
    token: str
    kind: str
    queue: str
    group: str | None
    priority: int
    attempt: int
    max_attempts: int
    deaths: int
    payload: bytes
    private_payload: bytes | None
    timeout_seconds: float | None
    backoff: Backoff
    signal: bytes | None = None  # JSON data of the signal that woke a parked job
    is_workflow: bool = False
    parent: Parent | None = None
    cancel_requested: str | None = None  # a workflow that was to stop before this attempt: it ends its own work now

    @property
    def key(self) -> LeaseKey:
        return LeaseKey(self.job_id, self.sequence, self.token)


class LeaseKey(msgspec.Struct, frozen=True, gc=False):
    """The proof that an attempt holds its lease."""

    job_id: str
    sequence: int
    token: str


class ExpiredLease(msgspec.Struct, frozen=True, kw_only=True):
    """A lease that the store ended because it expired."""

    job_id: str
    queue: str
    group: str | None
    token: str
    worker: str
    error: AttemptError


def adopted(job: NewJob, sequence: int, token: str) -> Lease:
    """The lease of a job that was found running outside: its first attempt."""
    return Lease(
        job_id=job.id,
        sequence=sequence,
        token=token,
        kind=job.kind,
        queue=job.queue,
        group=job.group,
        priority=job.priority,
        attempt=1,
        max_attempts=job.max_attempts,
        deaths=0,
        payload=job.payload,
        private_payload=job.private_payload,
        timeout_seconds=job.timeout_seconds,
        backoff=job.backoff,
        is_workflow=job.is_workflow,
        parent=job.parent,
    )


def is_expired(expires_at: Instant, now: Instant) -> bool:
    """Whether a lease has expired; it holds until just before `expires_at`.

    >>> is_expired(10, 9), is_expired(10, 10), is_expired(FOREVER, 10**15)
    (False, True, False)
    """
    return expires_at <= now and expires_at != FOREVER


def renewal_interval(lease_seconds: float) -> float:
    """
    >>> renewal_interval(15)
    5.0
    """
    return lease_seconds / RENEWALS_PER_LEASE
