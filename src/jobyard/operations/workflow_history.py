"""What a workflow has recorded, for people: its operations, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from jobyard.api.schemas.workflows import OperationError, OperationView
from jobyard.domain.explain import Cause
from jobyard.domain.history import NO_RESULT, HistoryEntry
from jobyard.domain.instant import FOREVER, Instant, rfc3339
from jobyard.domain.job import Job, State
from jobyard.domain.text import counted
from jobyard.executors.workflow.records import (
    PART,
    Children,
    StoredRecord,
    child_id,
    decode,
    epoch_of,
    operation_of,
    part,
    registered_children,
)
from jobyard.executors.workflow.relay import load_history
from jobyard.ports.store import Store

# A result may have 256 KB.
MAX_PAGE_BYTES = 2 << 20
FIRST_STEP = 10

# Operations that are recorded when they begin; others when they have ended.
BEGINNINGS = frozenset({"sleep", "wait_for", "run", "map", "compensate"})


def operation_view(job: Job, entry: HistoryEntry, epoch: int, *, with_result: bool) -> OperationView:
    """One entry; its result only if it is wanted. The private payload is not part of a history."""
    stored = decode(entry)
    record = stored.record
    key, _, name = entry.key.partition(PART)
    return OperationView(
        number=entry.number,
        key=key,
        part=name.replace(PART, " "),
        kind=record.kind,
        name=record.name,
        status=_status(stored),
        recorded_at=rfc3339(entry.at),
        started_at=None if record.started_at is None else rfc3339(record.started_at),
        seconds=record.seconds,
        child_id=child_id(job.id, epoch, key) if record.kind == "run" else None,
        error=None if record.error is None else OperationError(type=record.error.type, message=record.error.message),
        result=msgspec.json.decode(record.result) if with_result and record.result != NO_RESULT else msgspec.UNSET,
    )


def _status(stored: StoredRecord) -> str:
    if stored.record.error is not None:
        return "failed"
    return "started" if stored.record.kind in BEGINNINGS else "completed"


async def operation_views(
    store: Store, job: Job, *, after: int = 0, limit: int = 100, with_results: bool = False
) -> tuple[list[OperationView], int | None]:
    """A page of what the workflow has recorded, oldest first, and the number to continue after.

    A page ends early when its results are large.
    """
    entries, is_last = await _page(store, job.id, after, limit)
    # Child ids depend on the epoch, which is the first entry of a workflow that continued as new.
    first = entries if after == 0 else await store.history(job.id, limit=1)
    epoch = epoch_of({entry.key: decode(entry) for entry in first[:1]})
    views = [operation_view(job, entry, epoch, with_result=with_results) for entry in entries]
    return views, None if is_last else entries[-1].number


async def _page(store: Store, job_id: str, after: int, limit: int) -> tuple[list[HistoryEntry], bool]:
    """Up to `limit` entries, fewer if they are large, and whether they are the last."""
    found: list[HistoryEntry] = []
    size, step = 0, FIRST_STEP
    while len(found) <= limit and (size <= MAX_PAGE_BYTES or len(found) < 2):
        asked = min(step, limit + 1 - len(found))
        some = await store.history(job_id, after=found[-1].number if found else after, limit=asked)
        found += some
        size += sum(len(entry.data) for entry in some)
        if len(some) < asked:
            return found, True
        step = max(1, (MAX_PAGE_BYTES - size) * len(found) // max(1, size))  # if the next ones are as large
    return found[:-1], False  # the last one has only shown that there is more


async def workflow_waits(store: Store, job: Job, *, names_children: bool = True) -> list[Cause]:
    """What a workflow that gave its slot back waits for, in words."""
    if job.state is not State.PENDING or not job.is_workflow or job.cancel_requested is not None:
        return []
    entries = {entry.key: decode(entry) for entry in await load_history(store, job.id)}
    now = await store.now()
    return [*_signals(entries), *await _children(store, job, entries, names_children), *_sleeps(entries, now)]


def _signals(entries: Mapping[str, StoredRecord]) -> Iterator[Cause]:
    for key, stored in entries.items():
        if stored.record.kind == "wait_for" and PART not in key and part(key, "received") not in entries:
            name, since = stored.record.name, rfc3339(stored.at)
            until = None if stored.record.seconds is None else rfc3339(stored.at + int(stored.record.seconds * 1000))
            sentence = f"waits for signal {name} since {since}" + (f", until {until}" if until else "")
            yield Cause("waits_for_signal", sentence, {"signal": name, "since": since, "until": until})


def _sleeps(entries: Mapping[str, StoredRecord], now: Instant) -> Iterator[Cause]:
    for key, stored in entries.items():
        until = stored.at + int((stored.record.seconds or 0.0) * 1000)
        if now >= until or until >= FOREVER:
            continue
        if stored.record.kind == "sleep":
            yield Cause("sleeps", f"sleeps until {rfc3339(until)}", {"until": rfc3339(until)})
        elif key.rpartition(PART)[2].startswith("try") and operation_of(key) not in entries:
            name = operation_of(key)
            sentence = f"repeats step {name} at {rfc3339(until)}"
            yield Cause("retries_step", sentence, {"step": name, "until": rfc3339(until)})


async def _children(store: Store, job: Job, entries: Mapping[str, StoredRecord], names_children: bool) -> list[Cause]:
    """Child jobs whose ends were not delivered yet, together."""
    waiting: list[str] = []
    ended: dict[str, set[str]] = {}
    for children in registered_children(job.id, entries):
        if children.scope not in ended:
            ended[children.scope] = {entry.key for entry in await load_history(store, job.id, children.scope)}
        waiting += _unfinished(children, ended[children.scope])
    if not waiting:
        return []
    sentence = f"waits for {counted(len(waiting), 'child job')}"
    if not names_children:
        return [Cause("waits_for_children", sentence, {"count": len(waiting)})]
    oldest = await store.get(waiting[0])
    state = None if oldest is None else str(oldest.state)
    sentence += f", oldest {waiting[0]}" + (f" ({state})" if state else "")
    return [Cause("waits_for_children", sentence, {"count": len(waiting), "oldest": waiting[0], "state": state})]


def _unfinished(children: Children, ended: set[str]) -> list[str]:
    return [child for key, child in zip(children.keys, children.ids, strict=True) if key not in ended]
