"""Background jobs for Python: tasks, workers, workflows and schedules, stored in SQLite, PostgreSQL or Redis."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobyard.api.schemas.jobs import JobFilter, JobPage, JobSummary
    from jobyard.api.schemas.jobs import JobView as Job
    from jobyard.app.canvas import Batch
    from jobyard.app.handle import JobHandle
    from jobyard.app.jobyard import Jobyard
    from jobyard.app.task import BoundTask, Task
    from jobyard.domain.explain import Explanation
    from jobyard.domain.job import QueueSettings, State, Unique, UniqueScope
    from jobyard.domain.job_options import JobOptions
    from jobyard.domain.outcome import Cancel, Done, Failed, Handoff, Park, Snooze
    from jobyard.domain.retry import Delays, Exponential, Fixed
    from jobyard.domain.schedule import Missed, Overlap, Schedule
    from jobyard.errors import (
        BadInput,
        BadOption,
        ChildFailed,
        ConfigurationError,
        ExpressionError,
        Forbidden,
        HandlerError,
        IdempotencyKeyReused,
        InvalidWorkflow,
        JobCancelled,
        JobFailed,
        JobNotCompleted,
        JobNotFound,
        JobTimedOut,
        JobyardError,
        LeaseLost,
        NewerSchema,
        NonDeterminism,
        NotADatabase,
        NotFound,
        NotPossible,
        PayloadNotJson,
        PayloadTooLarge,
        QueueFull,
        ResultNotReady,
        ServerUnavailable,
        SignalTimeout,
        StepFailed,
        StoreError,
        StoreFull,
        StoreReadOnly,
        StoreUnavailable,
        TooManyRequests,
        Unauthorized,
        UnknownKind,
        UnknownStore,
        UnknownWorkflow,
        WorkerNotFound,
    )
    from jobyard.executors.python.context import BlockingContext, Context
    from jobyard.executors.python.prepared_job import PreparedJob
    from jobyard.executors.workflow.builtin import BatchCounts
    from jobyard.executors.workflow.child_ends import ChildResults
    from jobyard.executors.workflow.context import WorkflowContext
    from jobyard.ports.admin_store import Action, Filter, GroupInfo, Page, QueueInfo

__all__ = [
    "Action",
    "BadInput",
    "BadOption",
    "Batch",
    "BatchCounts",
    "BlockingContext",
    "BoundTask",
    "Cancel",
    "ChildFailed",
    "ChildResults",
    "ConfigurationError",
    "Context",
    "Delays",
    "Done",
    "Explanation",
    "Exponential",
    "ExpressionError",
    "Failed",
    "Filter",
    "Fixed",
    "Forbidden",
    "GroupInfo",
    "HandlerError",
    "Handoff",
    "IdempotencyKeyReused",
    "InvalidWorkflow",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobFilter",
    "JobHandle",
    "JobNotCompleted",
    "JobNotFound",
    "JobOptions",
    "JobPage",
    "JobSummary",
    "JobTimedOut",
    "Jobyard",
    "JobyardError",
    "LeaseLost",
    "Missed",
    "NewerSchema",
    "NonDeterminism",
    "NotADatabase",
    "NotFound",
    "NotPossible",
    "Overlap",
    "Page",
    "Park",
    "PayloadNotJson",
    "PayloadTooLarge",
    "PreparedJob",
    "QueueFull",
    "QueueInfo",
    "QueueSettings",
    "ResultNotReady",
    "Schedule",
    "ServerUnavailable",
    "SignalTimeout",
    "Snooze",
    "State",
    "StepFailed",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnavailable",
    "Task",
    "TooManyRequests",
    "Unauthorized",
    "Unique",
    "UniqueScope",
    "UnknownKind",
    "UnknownStore",
    "UnknownWorkflow",
    "WorkerNotFound",
    "WorkflowContext",
]

_MODULES = {
    "jobyard.api.schemas.jobs": ("Job", "JobFilter", "JobPage", "JobSummary"),
    "jobyard.app.canvas": ("Batch",),
    "jobyard.app.handle": ("JobHandle",),
    "jobyard.app.jobyard": ("Jobyard",),
    "jobyard.app.task": ("BoundTask", "Task"),
    "jobyard.domain.explain": ("Explanation",),
    "jobyard.domain.job": ("QueueSettings", "State", "Unique", "UniqueScope"),
    "jobyard.domain.job_options": ("JobOptions",),
    "jobyard.domain.outcome": ("Cancel", "Done", "Failed", "Handoff", "Park", "Snooze"),
    "jobyard.domain.retry": ("Delays", "Exponential", "Fixed"),
    "jobyard.domain.schedule": ("Missed", "Overlap", "Schedule"),
    "jobyard.errors": (
        "BadInput",
        "BadOption",
        "ChildFailed",
        "ConfigurationError",
        "ExpressionError",
        "Forbidden",
        "HandlerError",
        "IdempotencyKeyReused",
        "InvalidWorkflow",
        "JobCancelled",
        "JobFailed",
        "JobNotCompleted",
        "JobNotFound",
        "JobTimedOut",
        "JobyardError",
        "LeaseLost",
        "NewerSchema",
        "NonDeterminism",
        "NotADatabase",
        "NotFound",
        "NotPossible",
        "PayloadNotJson",
        "PayloadTooLarge",
        "QueueFull",
        "ResultNotReady",
        "ServerUnavailable",
        "SignalTimeout",
        "StepFailed",
        "StoreError",
        "StoreFull",
        "StoreReadOnly",
        "StoreUnavailable",
        "TooManyRequests",
        "Unauthorized",
        "UnknownKind",
        "UnknownStore",
        "UnknownWorkflow",
        "WorkerNotFound",
    ),
    "jobyard.executors.python.context": ("BlockingContext", "Context"),
    "jobyard.executors.python.prepared_job": ("PreparedJob",),
    "jobyard.executors.workflow.builtin": ("BatchCounts",),
    "jobyard.executors.workflow.child_ends": ("ChildResults",),
    "jobyard.executors.workflow.context": ("WorkflowContext",),
    "jobyard.ports.admin_store": ("Action", "Filter", "GroupInfo", "Page", "QueueInfo"),
}

# `Job` is what programs read; the API calls it JobView, beside JobSummary and JobPage.
_OWN_NAMES = {"Job": "JobView"}


def __getattr__(name: str) -> object:
    """Import a public name on first use: the sandbox daemon is part of this package and must not load the queue."""
    for module, names in _MODULES.items():
        if name in names:
            globals()[name] = found = getattr(import_module(module), _OWN_NAMES.get(name, name))
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
