"""Records: what the entries of a workflow's history hold."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Mapping

import msgspec

from jobyard.domain.history import NO_RESULT, HistoryEntry
from jobyard.domain.instant import Instant

# Separates the key of an operation from further entries that belong to it.
PART = "\x1f"
EPOCH_KEY = PART + "epoch"
# The workflow of a batch, and its operation that waits for the jobs.
BATCH_KIND, BATCH_KEY = "jobyard.batch", "=batch"
# Of the result of a step, a child job or a workflow: a history is read as a whole, by every attempt.
MAX_RESULT_BYTES = 256 << 10
# How deep workflows may start workflows. A deeper recursion is almost always a mistake.
MAX_DEPTH = 32


class StepError(msgspec.Struct, frozen=True):
    type: str
    message: str


class WorkflowRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One operation of a workflow, or a part of one."""

    kind: str = ""  # step, sleep, wait, run, map, version, now, compensate, …; "" for a part
    name: str = ""
    position: int = 0  # among the operations of its scope, to notice a changed order
    result: msgspec.Raw = NO_RESULT
    error: StepError | None = None
    seconds: float | None = None
    started_at: Instant | None = None  # of a step of a function: by the clock of the worker
    # Of child jobs
    first: int | None = None  # index of the first child of a window
    count: int | None = None
    seen: int | None = None  # children of the same map whose end was known then, and the number of the last end
    seen_number: int | None = None
    # Of other parts
    attempt: int | None = None
    epoch: int | None = None


class StoredRecord(msgspec.Struct, frozen=True):
    """A record with the time at which the store wrote it."""

    record: WorkflowRecord
    at: Instant
    number: int


_decoder = msgspec.json.Decoder(WorkflowRecord)


def decode(entry: HistoryEntry) -> StoredRecord:
    return StoredRecord(_decoder.decode(entry.data), entry.at, entry.number)


def entry_of(key: str, record: WorkflowRecord) -> HistoryEntry:
    return HistoryEntry(key=key, data=msgspec.json.encode(record))


def part(key: str, name: str) -> str:
    return f"{key}{PART}{name}"


def operation_of(key: str) -> str:
    """The key of the operation to which a part belongs.

    >>> operation_of(part("charge#1", "try1"))
    'charge#1'
    """
    return key.partition(PART)[0]


def run_scope(epoch: int) -> str:
    """Collects the ends of children that were started one by one."""
    return f"{epoch}:run"


def map_scope(epoch: int, key: str) -> str:
    return f"{epoch}:map:{key}"


def child_id(parent_id: str, epoch: int, key: str, index: int = 0) -> str:
    """The id of a child job: the same for each run of the same operation, so that it is inserted once.

    >>> child_id("p", 1, "scan#1") == child_id("p", 1, "scan#1") != child_id("p", 2, "scan#1")
    True
    >>> uuid.UUID(child_id("p", 1, "scan#1")).version
    8
    """
    digest = bytearray(hashlib.sha256(f"{parent_id}/{epoch}/{key}/{index}".encode()).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80  # version 8: defined by the application
    digest[8] = digest[8] & 0x3F | 0x80
    return str(uuid.UUID(bytes=bytes(digest)))


def is_child_id(job_id: str) -> bool:
    """Whether it may be the id of a child job.

    >>> is_child_id(child_id("p", 1, "scan#1")), is_child_id("01a1ed07-6a03-72f1-b81b-444b9205b099")
    (True, False)
    """
    return job_id[14:15] == "8"


def epoch_of(entries: Mapping[str, StoredRecord]) -> int:
    """How often the workflow has begun: 1, and one more each time that it continued as new."""
    header = entries.get(EPOCH_KEY)
    return (header.record.epoch if header else None) or 1


class Children(msgspec.Struct, frozen=True):
    """Child jobs that one operation has registered: ids, and where their ends are delivered."""

    scope: str
    keys: tuple[str, ...]  # of the ends
    ids: tuple[str, ...]


def batch_children(job_id: str, first: int, count: int) -> Children:
    """Jobs that may have been added to a batch. They are not in its history before it is closed."""
    indexes = range(first, first + count)
    ids = tuple(child_id(job_id, 1, BATCH_KEY, index) for index in indexes)
    return Children(map_scope(1, BATCH_KEY), tuple(map(str, indexes)), ids)


def registered_children(job_id: str, entries: Mapping[str, StoredRecord]) -> Iterator[Children]:
    """The child jobs that a workflow has registered, by its entries of scope ""."""
    epoch = epoch_of(entries)
    for key, stored in entries.items():
        record = stored.record
        if record.kind == "run":
            yield Children(run_scope(epoch), (key,), (child_id(job_id, epoch, key),))
        elif record.first is not None and record.count is not None:
            owner = operation_of(key)
            indexes = range(record.first, record.first + record.count)
            ids = tuple(child_id(job_id, epoch, owner, index) for index in indexes)
            yield Children(map_scope(epoch, owner), tuple(map(str, indexes)), ids)
