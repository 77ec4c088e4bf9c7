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
│   ├── UnknownStore
│   └── InvalidWorkflow
├── ExpressionError
├── JobNotFound
├── WorkerNotFound
├── NotFound
│   └── UnknownWorkflow
├── NotPossible
├── LeaseLost
├── ResultNotReady
├── JobNotCompleted
│   ├── JobFailed
│   ├── JobTimedOut
│   ├── JobCancelled
│   └── ChildFailed
├── HandlerError
├── StepFailed
├── SignalTimeout
├── NonDeterminism
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


class InvalidWorkflow(ConfigurationError):
    """A workflow file is invalid; `problems` has one line for each error in it."""

    code = "invalid_workflow"

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems.splitlines() if isinstance(problems, str) else problems)
        super().__init__("\n".join(self.problems))


class ExpressionError(JobyardError):
    """A reference or condition of a workflow file cannot be parsed or evaluated."""

    code = "expression"


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


class UnknownWorkflow(NotFound):
    """No workflow file has this id."""

    code = "unknown_workflow"

    @classmethod
    def of(cls, name: str, known: Iterable[str], warning: str = "") -> UnknownWorkflow:
        """`warning`: which files were not loaded."""
        known = sorted(known)
        listed = (
            f"Known workflows: {', '.join(known[:20])}{', …' if len(known) > 20 else ''}."
            if known
            else (
                "No workflow file is loaded: put one into the folder workflows, or name the folder in workflows.folder."
            )
        )
        hint = did_you_mean(name[:100], known) + (warning and f" {warning}")
        return cls(f"No workflow is named {name[:100]}. {listed}{hint}")


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


class HandlerError(JobyardError):
    """What the handler of the awaited job raised, in another process: the `__cause__` of JobFailed.

    `error_type` is the name of the exception, `traceback` its text, if the store has it.
    """

    code = "handler_error"

    def __init__(self, error_type: str, message: str, traceback: str | None = None) -> None:
        super().__init__(f"{error_type}: {message}" if traceback is None else f"\n{traceback.rstrip()}")
        self.error_type = error_type
        self.message = message
        self.traceback = traceback


class JobTimedOut(JobNotCompleted):
    """The last attempt of the awaited job timed out."""

    code = "job_timed_out"


class JobCancelled(JobNotCompleted):
    """The awaited job was cancelled."""

    code = "job_was_cancelled"


class ChildFailed(JobNotCompleted):
    """A child job of the workflow ended without a result; `job_id` is the id of the child."""

    code = "child_failed"

    def __init__(self, message: str, job_id: str = "") -> None:
        super().__init__(message)
        self.job_id = job_id


class StepFailed(JobyardError):
    """A step of the workflow failed all its attempts; `error_type` is the name of its exception, if it raised one.

    Raised again, with the same text, whenever the workflow is replayed.
    """

    code = "step_failed"
    step = error_type = message = ""

    @classmethod
    def of(cls, step: str, error_type: str, message: str) -> StepFailed:
        """
        >>> print(StepFailed.of("charge", "KeyError", "'card'"))
        Step charge failed: KeyError: 'card'
        """
        what = f"{error_type}: {message}" if error_type else message
        error = cls(f"Step {step} failed: {what}")
        error.step, error.error_type, error.message = step, error_type, message
        return error


class SignalTimeout(JobyardError, TimeoutError):
    """The signal did not arrive before the timeout of `ctx.wait_for`."""

    code = "signal_timeout"


class NonDeterminism(JobyardError):
    """The workflow function no longer matches what it has recorded: it was changed while a run was in progress."""

    code = "non_determinism"


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
    >>> did_you_mean("timeout", ["timeout_seconds"])
    ' Did you mean "timeout_seconds"?'
    >>> did_you_mean("zzz", ["priority"])
    ''
    """
    names = list(known)
    # A name without its unit is too different for difflib.
    near = difflib.get_close_matches(word, names, n=1) or [name for name in names if name.startswith(f"{word}_")]
    return f' Did you mean "{near[0]}"?' if near else ""
