"""One durable, fair, fenced job queue."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobyard.app.jobyard import Jobyard
    from jobyard.app.task import Call, Handle
    from jobyard.domain.job import Job, QueueSettings, State, Unique, UniqueScope
    from jobyard.domain.outcome import Cancel, Done, Failed, Handoff, Park, Snooze
    from jobyard.domain.retry import Delays, Exponential, Fixed
    from jobyard.executors.python.context import BlockingContext, Context
    from jobyard.ports.admin_store import Filter

__all__ = [
    "BlockingContext",
    "Call",
    "Cancel",
    "Context",
    "Delays",
    "Done",
    "Exponential",
    "Failed",
    "Filter",
    "Fixed",
    "Handle",
    "Handoff",
    "Job",
    "Jobyard",
    "Park",
    "QueueSettings",
    "Snooze",
    "State",
    "Unique",
    "UniqueScope",
]

_PLACES = {
    "jobyard.domain.job": ("Job", "QueueSettings", "State", "Unique", "UniqueScope"),
    "jobyard.domain.outcome": ("Cancel", "Done", "Failed", "Handoff", "Park", "Snooze"),
    "jobyard.domain.retry": ("Delays", "Exponential", "Fixed"),
    "jobyard.executors.python.context": ("BlockingContext", "Context"),
    "jobyard.app.task": ("Call", "Handle"),
    "jobyard.app.jobyard": ("Jobyard",),
    "jobyard.ports.admin_store": ("Filter",),
}


def __getattr__(name: str) -> object:
    """Loaded when asked for: the sandbox's daemon lives in this package, too, and must hold nothing of the queue."""
    for place, names in _PLACES.items():
        if name in names:
            globals()[name] = found = getattr(import_module(place), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
