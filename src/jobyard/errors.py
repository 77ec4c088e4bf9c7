"""Every error jobyard raises, with a stable code; the first line of a docstring says when it is raised.

JobyardError
├── BadInput ............. refused before anything is written
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
├── JobEndedBadly
│   ├── JobFailed
│   ├── JobTimedOut
│   └── JobWasCancelled
├── NotLetIn
├── NotAllowed
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
    """Anything jobyard itself has to say; catch this to catch all of them."""

    code: ClassVar[str] = "error"


class BadInput(JobyardError, ValueError):
    """What was handed in cannot be taken; nothing was written."""

    code = "bad_input"


class PayloadNotJson(BadInput):
    """A payload, result or progress value that JSON cannot hold."""

    code = "payload_not_json"


class PayloadTooLarge(BadInput):
    """A payload, result or progress value over the size cap."""

    code = "payload_too_large"


class UnknownKind(BadInput):
    """A job kind that no handler was declared for."""

    code = "unknown_kind"


class BadOption(BadInput):
    """An option outside its range: a negative delay, an absurd limit, an empty name."""

    code = "bad_option"
    word = ""  # the option's name, where it is known


class QueueFull(BadInput):
    """The queue or the group already holds its maximum of waiting jobs (back-pressure)."""

    code = "queue_full"


class IdempotencyKeyReused(BadInput):
    """The same Idempotency-Key came with another request before."""

    code = "idempotency_key_reused"


class ConfigurationError(JobyardError):
    """A setting that cannot be used as it is."""

    code = "configuration"


class UnknownStore(ConfigurationError):
    """A store URL whose scheme or shape is not known."""

    code = "unknown_store"


class JobNotFound(JobyardError, LookupError):
    """No job with that id: never inserted, deleted, or removed by retention."""

    code = "job_not_found"


class WorkerNotFound(JobyardError, LookupError):
    """No live worker with that id: stopped, dead, or never there."""

    code = "worker_not_found"


class NotFound(JobyardError, LookupError):
    """A server has nothing by that name: a token, a group, a page."""

    code = "not_found"


class NotPossible(JobyardError):
    """The job's state does not allow that change, or this store cannot do it."""

    code = "not_possible"


class LeaseLost(JobyardError):
    """The attempt no longer holds its lease; what it reports is refused."""

    code = "lease_lost"


class ResultNotReady(JobyardError, TimeoutError):
    """The job did not end within the time the caller was willing to wait."""

    code = "result_not_ready"


class JobEndedBadly(JobyardError):
    """The awaited job ended without a result."""

    code = "job_ended_badly"


class JobFailed(JobEndedBadly):
    """The awaited job used up its attempts, or was quarantined."""

    code = "job_failed"


class JobTimedOut(JobEndedBadly):
    """The awaited job's last attempt ran out of time."""

    code = "job_timed_out"


class JobWasCancelled(JobEndedBadly):
    """The awaited job was cancelled."""

    code = "job_was_cancelled"


class NotLetIn(JobyardError):
    """A server does not know who asks: no token, or one that is wrong, revoked or expired."""

    code = "no_token"


class NotAllowed(JobyardError):
    """The token's role, queues or groups do not allow that."""

    code = "not_allowed"


class TooManyRequests(JobyardError):
    """The token, or the address, asks a server too often."""

    code = "too_many_requests"


class StoreError(JobyardError):
    """The store could not do what was asked."""

    code = "store"


class NotADatabase(StoreError):
    """The file exists but is not a jobyard database."""

    code = "not_a_database"


class NewerSchema(StoreError):
    """The database was written by a newer jobyard."""

    code = "newer_schema"


class StoreReadOnly(StoreError):
    """The store, or the folder it lives in, cannot be written."""

    code = "store_read_only"


class StoreFull(StoreError):
    """There is no room left on the store's disk; nothing was half-written."""

    code = "store_full"


class StoreUnavailable(StoreError):
    """The store does not answer: locked too long, gone, closed or cut off."""

    code = "store_unavailable"


class ServerUnavailable(StoreUnavailable):
    """The server does not answer, or not as a jobyard server does."""

    code = "server_unavailable"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A closing hint for an unknown word, empty when nothing is near.

    >>> did_you_mean("prioritty", ["priority", "group"])
    ' Did you mean "priority"?'
    >>> did_you_mean("zzz", ["priority"])
    ''
    """
    near = difflib.get_close_matches(word, list(known), n=1)
    return f' Did you mean "{near[0]}"?' if near else ""
