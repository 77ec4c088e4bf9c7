"""History of a job: what a workflow has recorded, and what was delivered to it from outside."""

from __future__ import annotations

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import Parent, State

# Signals kept for one job. A job that takes none of them must not fill the store.
MAX_SIGNALS = 10_000
# Of the signals of one name that a job which is not a workflow has taken, the last ones are kept, without their data,
# to recognise one that is sent again. Without a bound, a job that parks for ever would fill the store.
MAX_TAKEN_SIGNALS = 100
_SIGNAL = "signal:"
# The default where a result is decoded as it is: msgspec cannot decode `Raw | None`.
NO_RESULT = msgspec.Raw()


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry; the first entry with a scope and key is kept. The store assigns `number` and `at`.

    Entries of scope "" are written by the workflow itself; each other scope collects deliveries of one kind: the ends
    of child jobs, or the signals of one name.

    Numbers ascend in the order of writing, so a reader that continues after a number misses no delivery. For scope ""
    this needs one writer at a time, which the holder of the lease must be: `CheckpointBatcher` is.
    """

    key: str
    scope: str = ""
    data: bytes = b"null"  # a JSON document
    number: int = 0
    at: Instant = 0


class Delivery(msgspec.Struct, frozen=True):
    """An entry for a job that another one writes: the end of a child job, or a signal."""

    job_id: str
    scope: str
    key: str
    data: bytes


class Wake(msgspec.Struct, frozen=True):
    """A parked workflow is due once its history has at least `count` entries of the scope."""

    scope: str
    count: int


class EndedJob(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a job that must be delivered to other jobs. Written in the same atomic step as the end itself."""

    job_id: str
    state: State | None  # None: deleted
    parent: Parent | None = None
    is_workflow: bool = False
    result: bytes | None = None
    reason: str | None = None


class ChildEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a child job ended, as its parent's history holds it."""

    job_id: str
    state: State | None = None
    result: msgspec.Raw = NO_RESULT
    reason: str | None = None


def deliveries_of(ended: EndedJob) -> list[Delivery]:
    """Deliveries to the parent of an ended job; of a failure also one in a scope of its own, to be waited for alone.

    >>> parent = Parent("p", "1:scan", "3")
    >>> [delivery] = deliveries_of(EndedJob(job_id="c", state=State.COMPLETED, parent=parent, result=b"[7]"))
    >>> delivery.data
    b'{"job_id":"c","state":"COMPLETED","result":[7]}'
    >>> [each.scope for each in deliveries_of(EndedJob(job_id="c", state=State.FAILED, parent=parent))]
    ['1:scan', '1:scan:failed']
    """
    parent = ended.parent
    if parent is None:
        return []
    result = NO_RESULT if ended.result is None else msgspec.Raw(ended.result)
    end = ChildEnd(job_id=ended.job_id, state=ended.state, result=result, reason=ended.reason)
    scopes = [parent.scope] if ended.state is State.COMPLETED else [parent.scope, failed_scope(parent.scope)]
    return [Delivery(parent.job_id, scope, parent.key, msgspec.json.encode(end)) for scope in scopes]


def failed_scope(scope: str) -> str:
    """Where the ends of those children are delivered that did not complete."""
    return f"{scope}:failed"


def signal_scope(name: str) -> str:
    """
    >>> signal_scope("approved")
    'signal:approved'
    """
    return _SIGNAL + name


def is_signal_scope(scope: str) -> bool:
    return scope.startswith(_SIGNAL)
