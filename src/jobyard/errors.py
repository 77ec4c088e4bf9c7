"""Every exception that jobyard raises. Each has a stable `code`; the docstring says when it is raised.

JobyardError
├── BadInput ............. rejected before anything is written
│   ├── PayloadNotJson
│   ├── PayloadTooLarge
│   ├── UnknownKind
│   ├── BadOption
│   ├── QueueFull
│   └── IdempotencyKeyReused
├── ConfigurationError
│   └── UnknownStore
├── JobNotFound
├── WorkerNotFound
├── NotFound
├── NotPossible
├── LeaseLost
├── ResultNotReady
├── JobNotCompleted
│   ├── JobFailed
│   ├── JobTimedOut
│   └── JobCancelled
├── Unauthorized
├── Forbidden
├── TooManyRequests
└── StoreError
    ├── NotADatabase
    ├── NewerSchema
    ├── StoreReadOnly
    ├── StoreFull
    └── StoreUnavailable
        └── ServerUnavailable
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar


class JobyardError(Exception):
    """Base class of all jobyard exceptions."""

    code: ClassVar[str] = "error"


class BadInput(JobyardError, ValueError):
    """The input is invalid; nothing was written."""

    code = "bad_input"
    option: str = ""  # the name of the invalid option or field, if one is to blame


class PayloadNotJson(BadInput):
    """A payload, result or progress value cannot be encoded as JSON."""

    code = "payload_not_json"


class PayloadTooLarge(BadInput):
    """A payload, result or progress value exceeds the size limit."""

    code = "payload_too_large"


class UnknownKind(BadInput):
    """No handler is declared for this kind of job."""

    code = "unknown_kind"
    option = "kind"

    @classmethod
    def of(cls, kind: str, known: Iterable[str]) -> UnknownKind:
        return cls(f"No handler is declared for kind {kind}.{did_you_mean(kind, known)}")


class BadOption(BadInput):
    """An option is invalid: a negative delay, a limit out of range, an empty name."""

    code = "bad_option"

    others: tuple[BadOption, ...] = ()  # further options of the same call that are invalid

    def __init__(self, message: str, *, option: str = "") -> None:
        super().__init__(message)
        self.option = option


def duplicate_job_id(job_id: str) -> BadInput:
    return BadInput(f"Cannot insert job {job_id}: a job with this id exists. Give each job an id of its own.")


class QueueFull(BadInput):
    """The queue or the group already holds its maximum number of waiting jobs (back-pressure)."""

    code = "queue_full"

    @classmethod
    def over(cls, limit: int, queue: str, group: str | None = None) -> QueueFull:
        """The limit is `max_waiting` of the queue or, with a group, its `max_waiting_per_group`.

        >>> print(QueueFull.over(10, "mail"))
        Cannot insert into queue "mail": at most 10 jobs may wait there. Retry later, or raise max_waiting.
        """
        where = f'queue "{queue}"' if group is None else f'group "{group}" of queue "{queue}"'
        setting = "max_waiting" if group is None else "max_waiting_per_group"
        jobs = "job" if limit == 1 else "jobs"
        return cls(
            f"Cannot insert into {where}: at most {limit} {jobs} may wait there. Retry later, or raise {setting}."
        )


class IdempotencyKeyReused(BadInput):
    """The Idempotency-Key was already used with a different request."""

    code = "idempotency_key_reused"


class ConfigurationError(JobyardError):
    """A setting is invalid."""

    code = "configuration"


class UnknownStore(ConfigurationError):
    """The store URL has an unknown scheme or is malformed."""

    code = "unknown_store"


class JobNotFound(JobyardError, LookupError):
    """No job has this id: it never existed, was deleted, or was removed by retention."""

    code = "job_not_found"

    @classmethod
    def of(cls, job_id: str) -> JobNotFound:
        return cls(f"Job {job_id} not found: it never existed, was deleted, or was removed by retention.")


class WorkerNotFound(JobyardError, LookupError):
    """No live worker has this id: it stopped, died, or never existed."""

    code = "worker_not_found"


class NotFound(JobyardError, LookupError):
    """The server has no such resource: a token, a group, a schedule."""

    code = "not_found"


class NotPossible(JobyardError):
    """The state of the job does not allow this change, or the store does not support it."""

    code = "not_possible"


class LeaseLost(JobyardError):
    """The attempt no longer holds its lease; its reports and results are rejected."""

    code = "lease_lost"


class ResultNotReady(JobyardError, TimeoutError):
    """The job did not end within the timeout of the caller."""

    code = "result_not_ready"


class JobNotCompleted(JobyardError):
    """The awaited job ended without a result."""

    code = "job_ended_badly"


class JobFailed(JobNotCompleted):
    """The awaited job failed all its attempts, or was quarantined."""

    code = "job_failed"


class JobTimedOut(JobNotCompleted):
    """The last attempt of the awaited job timed out."""

    code = "job_timed_out"


class JobCancelled(JobNotCompleted):
    """The awaited job was cancelled."""

    code = "job_was_cancelled"


class Unauthorized(JobyardError):
    """The request has no token, or the token is wrong, revoked or expired."""

    code = "no_token"


class Forbidden(JobyardError):
    """The role, queues or groups of the token do not allow this request."""

    code = "not_allowed"


class TooManyRequests(JobyardError):
    """The token or the address exceeded the rate limit of the server."""

    code = "too_many_requests"


class StoreError(JobyardError):
    """The store could not carry out the command."""

    code = "store"


class NotADatabase(StoreError):
    """The file exists but is not a jobyard database."""

    code = "not_a_database"


class NewerSchema(StoreError):
    """The database was written by a newer jobyard."""

    code = "newer_schema"


class StoreReadOnly(StoreError):
    """The store, or its folder, is read-only."""

    code = "store_read_only"


class StoreFull(StoreError):
    """The disk of the store is full; nothing was partly written."""

    code = "store_full"


class StoreUnavailable(StoreError):
    """The store does not respond: locked too long, unreachable or closed."""

    code = "store_unavailable"


class ServerUnavailable(StoreUnavailable):
    """The server does not respond, or does not respond as a jobyard server."""

    code = "server_unavailable"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A suggestion for an unknown word; empty when nothing is similar.

    >>> did_you_mean("prioritty", ["priority", "group"])
    ' Did you mean "priority"?'
    >>> did_you_mean("zzz", ["priority"])
    ''
    """
    near = difflib.get_close_matches(word, list(known), n=1)
    return f' Did you mean "{near[0]}"?' if near else ""
