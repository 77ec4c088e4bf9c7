"""The journal of one attempt: what the workflow recorded before, and what it records now."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from jobyard.domain.history import ChildEnd, HistoryEntry
from jobyard.domain.instant import Instant
from jobyard.domain.lease import Lease
from jobyard.errors import BadOption, LeaseLost, NonDeterminism, NotPossible
from jobyard.executors.workflow.batching import StoreBatches
from jobyard.executors.workflow.records import (
    PART,
    StoredRecord,
    WorkflowRecord,
    decode,
    entry_of,
    epoch_of,
    run_scope,
)
from jobyard.ports.store import Store

log = logging.getLogger("jobyard.workflow")

WARN_ENTRIES, MAX_ENTRIES = 1_000, 10_000
# Operations shown on each side of a non-determinism error.
SHOWN = 12


class NotAwaited(NotPossible):
    """An operation was called without `await`, so it did nothing."""


class Scope:
    """A sequence of operations: the function itself, or one branch of a `gather`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.task = asyncio.current_task()
        self.names: Counter[str] = Counter()
        self.position = 0
        self.last_recorded = -1
        self.gathers = 0  # in progress, in which the order of new and recorded operations may differ


current_scope: contextvars.ContextVar[Scope] = contextvars.ContextVar("jobyard_workflow_scope")


class Operation(NamedTuple):
    kind: str
    name: str
    key: str
    position: int
    stored: StoredRecord | None  # what an earlier attempt recorded


class Journal:
    def __init__(self, lease: Lease, store: Store, batches: StoreBatches) -> None:
        self.lease = lease
        self._store = store
        self.batches = batches
        self.entries: dict[str, StoredRecord] = {}
        self.loaded: frozenset[str] = frozenset()  # keys recorded by earlier attempts
        self._unread: dict[str, dict[str, None]] = {}  # recorded and not asked for yet, by scope path
        self._called: list[str] = []
        self._not_begun: dict[str, str] = {}  # operations that were called and not awaited yet, by key
        self._notes: list[HistoryEntry] = []
        self._optional_notes: list[HistoryEntry] = []
        self._run_ends: dict[str, ChildEnd] | None = None
        self._clock: tuple[Instant, float] | None = None
        self.fault: NonDeterminism | None = None
        self.is_lost = False  # the lease: a checkpoint was refused
        self.taken_signals: set[tuple[str, str]] = set()  # by waits of this attempt, by name and key

    async def load(self) -> None:
        # Read together: the ends of child jobs are of the first epoch unless it has continued as new.
        recorded, ends = await self.batches.histories(self.lease.job_id, "", run_scope(1))
        self.entries = {entry.key: decode(entry) for entry in recorded}
        if self.epoch == 1:
            self._run_ends = {entry.key: child_end(entry) for entry in ends}
        self.loaded = frozenset(self.entries)
        for key in self.entries:
            if PART not in key:
                self._unread.setdefault(path_of(key), {})[key] = None

    @property
    def epoch(self) -> int:
        return epoch_of(self.entries)

    # Keys

    def operation(self, kind: str, name: str, identity: str | None = None) -> Operation:
        """Assign the key of an operation when it is called. Raises NonDeterminism if the record does not match."""
        if self.fault is not None:
            raise self.fault  # it was caught
        scope = current_scope.get(None)
        if scope is None or asyncio.current_task() is not scope.task:
            raise NotPossible(
                f"Cannot use ctx.{kind} in a task of its own: its order would differ from run to run. Call it in the "
                "workflow function, or run branches side by side with ctx.gather(…)."
            )
        if PART in name or (identity and PART in identity):
            raise BadOption("The name of an operation cannot contain the character U+001F.", option="name")
        word = _escape(name if identity is None else f"={identity}")
        scope.names[word] += 1
        if identity is not None and scope.names[word] > 1:
            raise BadOption(f"Two operations of this workflow have the id {identity}. Give each its own.", option="id")
        key = scope.path + (word if identity is not None else f"{word}#{scope.names[word]}")
        stored = self.entries.get(key)
        self._called.append(f"{kind} {key}")
        self._not_begun[key] = f"{kind} {name}"
        if stored is not None:
            self._match(kind, name, key, stored.record, scope)
        position, scope.position = scope.position, scope.position + 1
        self._unread.get(scope.path, {}).pop(key, None)
        return Operation(kind, name, key, position, stored)

    def begin(self, key: str) -> None:
        """The operation is being awaited."""
        self._not_begun.pop(key, None)

    def forget_not_begun(self) -> None:
        """A branch has failed: those that had no room yet are never awaited."""
        self._not_begun.clear()

    def require_all_begun(self) -> None:
        """The function has returned: everything that it has called must have been awaited."""
        if self._not_begun:
            names = list(self._not_begun.values())
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            was = "was" if len(names) == 1 else "were"
            raise NotAwaited(
                f"{', '.join(names[:3])}{more} {was} called without await. Write `await ctx.step(…)`, or pass it to "
                "ctx.gather(…)."
            )

    def _match(self, kind: str, name: str, key: str, record: WorkflowRecord, scope: Scope) -> None:
        if (record.kind, record.name) != (kind, name):
            raise self._mismatch(f"{key} was recorded as {record.kind} {record.name}, and is now {kind} {name}")
        if record.position < scope.last_recorded:
            raise self._mismatch(f"{key} now comes after operations that it was recorded before")
        scope.last_recorded = record.position

    def has_unread(self, path: str) -> bool:
        """Whether operations of the scope are recorded that the function has not asked for yet."""
        return bool(self._unread.get(path))

    def has_unread_below(self, prefix: str) -> bool:
        """Whether branches of a `gather` have recorded operations that they have not asked for yet."""
        return any(keys and path.startswith(prefix) for path, keys in self._unread.items())

    def require_no_unread(self) -> None:
        """An operation that was not recorded is about to run: everything recorded in its scope must come before it."""
        scope = current_scope.get()
        unread = self._unread.get(scope.path)
        if unread and not scope.gathers:
            raise self._mismatch(f"{self._called[-1]} is new, and comes before {', '.join(list(unread)[:3])}")

    def mark_all_read(self) -> None:
        """For keys that do not depend on the order of calls: nothing that is recorded has to be asked for."""
        self._unread = {}

    def require_all_read(self) -> None:
        """The function has returned: everything that was recorded must have been asked for."""
        unread = [key for keys in self._unread.values() for key in keys]
        if unread:
            raise self._mismatch(f"the function ended without {', '.join(unread[:3])}, which earlier runs recorded")

    def _mismatch(self, what: str) -> NonDeterminism:
        recorded = [f"{each.record.kind} {key}" for key, each in self.entries.items() if each.record.kind]
        self.fault = NonDeterminism(
            f"Cannot continue workflow {self.lease.kind}: {what}.\n"
            f"Recorded: {_shown(recorded)}\nThis run: {_shown(self._called)}\n"
            "Deploy the former code and retry the job, or guard the change with ctx.version(name, 2)."
        )
        return self.fault

    # Recording

    async def record(self, key: str, record: WorkflowRecord) -> StoredRecord:
        """Write a record before the function goes on; the first one written under the key is returned."""
        # Parts and undo steps are recorded beyond it: a workflow that has reached it must still be able to end.
        if len(self.entries) >= MAX_ENTRIES and record.kind not in ("", "undo"):
            raise NotPossible(
                f"Cannot record more than {MAX_ENTRIES:,} operations in one workflow. Use ctx.map for many items, or "
                "ctx.continue_as_new(…) for an endless workflow."
            )
        entry = entry_of(key, record)
        [first, *rest] = await self._write((entry, *self._take_notes()))
        self._remember(rest)
        # Usually nothing was stored before, and what was written needs no decoding.
        is_own = first.data == entry.data
        stored = StoredRecord(record, first.at, first.number) if is_own else decode(first)
        self.entries[key] = stored
        self._clock = stored.at, time.monotonic()
        if len(self.entries) == WARN_ENTRIES:
            log.warning(
                "workflow job %s has recorded %d operations; it fails at %d. Use ctx.map or ctx.continue_as_new",
                self.lease.job_id, WARN_ENTRIES, MAX_ENTRIES,
            )  # fmt: skip
        return stored

    def note(self, key: str, record: WorkflowRecord, *, is_optional: bool = False) -> None:
        """Write a record with the next one, or before the attempt ends; an optional one perhaps not at all."""
        (self._optional_notes if is_optional else self._notes).append(entry_of(key, record))

    async def flush(self, *, optional: bool) -> None:
        if self._notes or (optional and self._optional_notes):
            self._remember(await self._write(self._take_notes()))

    def _take_notes(self) -> tuple[HistoryEntry, ...]:
        notes = (*self._notes, *self._optional_notes)
        self._notes, self._optional_notes = [], []
        return notes

    async def _write(self, entries: tuple[HistoryEntry, ...]) -> tuple[HistoryEntry, ...]:
        try:
            return await self.batches.checkpoints.write(self.lease.key, entries)
        except LeaseLost:
            self.is_lost = True
            raise

    def _remember(self, written: Iterable[HistoryEntry]) -> None:
        for entry in written:
            self.entries[entry.key] = decode(entry)

    # Time and deliveries

    async def now(self) -> Instant:
        """The store's clock, read once, then advanced by the local monotonic clock."""
        if self._clock is None:
            self._clock = await self._store.now(), time.monotonic()
        at, read = self._clock
        return at + int((time.monotonic() - read) * 1000)

    async def run_end(self, key: str) -> ChildEnd | None:
        """The end of a child that was started by `ctx.run`, if it was delivered before this attempt."""
        return (await self.run_ends()).get(key)

    async def add_run_end(self, key: str, end: ChildEnd) -> None:
        """The end of a child was delivered during this attempt."""
        ends = await self.run_ends()
        ends[key] = end
        self._run_ends = ends

    async def run_ends(self) -> dict[str, ChildEnd]:
        if self._run_ends is None and not any(self.entries[key].record.kind == "run" for key in self.loaded):
            return {}
        if self._run_ends is None:
            [entries] = await self.batches.histories(self.lease.job_id, run_scope(self.epoch))
            self._run_ends = {entry.key: child_end(entry) for entry in entries}
        return self._run_ends


def child_end(entry: HistoryEntry) -> ChildEnd:
    return msgspec.json.decode(entry.data, type=ChildEnd)


def path_of(key: str) -> str:
    """
    >>> path_of("gather#1/2/charge#1"), path_of("charge#1")
    ('gather#1/2/', '')
    """
    return key[: key.rfind("/") + 1]


def _escape(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F") if "/" in name or "%" in name else name


def _shown(operations: list[str]) -> str:
    shown = ", ".join(operations[-SHOWN:])
    return f"… {shown}" if len(operations) > SHOWN else shown or "nothing"
