"""One durable, fair, fenced job queue. The exceptions are in `jobyard.errors`."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobyard.app.handle import JobHandle
    from jobyard.app.jobyard import Jobyard
    from jobyard.app.task import BoundTask, PreparedJob, Task
    from jobyard.domain.explain import Explanation
    from jobyard.domain.job import Job, QueueSettings, State, Unique, UniqueScope
    from jobyard.domain.job_options import JobOptions
    from jobyard.domain.outcome import Cancel, Done, Failed, Handoff, Park, Snooze
    from jobyard.domain.retry import Delays, Exponential, Fixed
    from jobyard.domain.schedule import Missed, Overlap, Schedule
    from jobyard.executors.python.context import BlockingContext, Context
    from jobyard.ports.admin_store import Action, Filter, GroupInfo, Page, QueueInfo

__all__ = [
    "Action",
    "BlockingContext",
    "BoundTask",
    "Cancel",
    "Context",
    "Delays",
    "Done",
    "Explanation",
    "Exponential",
    "Failed",
    "Filter",
    "Fixed",
    "GroupInfo",
    "Handoff",
    "Job",
    "JobHandle",
    "JobOptions",
    "Jobyard",
    "Missed",
    "Overlap",
    "Page",
    "Park",
    "PreparedJob",
    "QueueInfo",
    "QueueSettings",
    "Schedule",
    "Snooze",
    "State",
    "Task",
    "Unique",
    "UniqueScope",
]

_MODULES = {
    "jobyard.app.handle": ("JobHandle",),
    "jobyard.app.jobyard": ("Jobyard",),
    "jobyard.app.task": ("BoundTask", "PreparedJob", "Task"),
    "jobyard.domain.explain": ("Explanation",),
    "jobyard.domain.job": ("Job", "QueueSettings", "State", "Unique", "UniqueScope"),
    "jobyard.domain.job_options": ("JobOptions",),
    "jobyard.domain.outcome": ("Cancel", "Done", "Failed", "Handoff", "Park", "Snooze"),
    "jobyard.domain.retry": ("Delays", "Exponential", "Fixed"),
    "jobyard.domain.schedule": ("Missed", "Overlap", "Schedule"),
    "jobyard.executors.python.context": ("BlockingContext", "Context"),
    "jobyard.ports.admin_store": ("Action", "Filter", "GroupInfo", "Page", "QueueInfo"),
}


def __getattr__(name: str) -> object:
    """Import a public name on first use: the sandbox daemon is part of this package and must not load the queue."""
    for module, names in _MODULES.items():
        if name in names:
            globals()[name] = found = getattr(import_module(module), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
