"""One durable, fair, fenced job queue."""

from jobyard.domain.job import Job, QueueSettings, State, Unique, UniqueScope
from jobyard.domain.outcome import Cancel, Done, Failed, Handoff, Park, Snooze
from jobyard.domain.retry import Delays, Exponential, Fixed
from jobyard.executors.python.context import BlockingContext, Context
from jobyard.main.definition import Call, Handle
from jobyard.main.yard import Jobyard
from jobyard.ports.store import Filter

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
