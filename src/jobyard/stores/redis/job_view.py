"""The public view of a job, assembled from the records that the server keeps of it."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, NamedTuple, TypeVar

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import AttemptError, Job, LogLine, Progress, State, Step
from jobyard.domain.retry import DEFAULT_BACKOFF
from jobyard.stores.redis.codec import (
    STATES,
    decode_parent,
    decode_queue,
    is_workflow,
    split_strings,
    unpack_changes,
    unpack_job,
)

T = TypeVar("T", AttemptError, LogLine, Progress)

STAMP = Struct(">d")
STEP = Struct(">Idd")  # order, started, finished
DONE = Struct(">BBddIH")  # state, has a reason, finished, started, attempt, length of the worker
LEASE_HEAD = Struct(">16sdH")  # token, started, length of the worker
LEASE_TAIL = Struct(">IBH")  # attempt, flags, length of the group


class LeaseRecord(NamedTuple):
    token: str
    started_at: Instant
    worker: str
    attempt: int
    group: str | None


class FinishedRecord(NamedTuple):
    state: State
    finished_at: Instant
    started_at: Instant | None
    attempt: int
    worker: str | None
    reason: str | None
    result: bytes | None


class CancelRecord(msgspec.Struct, array_like=True):
    worker: str
    job_id: str
    reason: str


def unpack_lease_record(record: bytes) -> LeaseRecord:
    token, started_at, size = LEASE_HEAD.unpack_from(record)
    end = LEASE_HEAD.size + size
    attempt, _, length = LEASE_TAIL.unpack_from(record, end)
    start = end + LEASE_TAIL.size
    group = record[start : start + length].decode() or None
    worker = record[LEASE_HEAD.size : end].decode()
    return LeaseRecord(token.decode(), int(started_at), worker, attempt, group)


def unpack_finished(record: bytes) -> FinishedRecord:
    code, has_reason, finished_at, started_at, attempt, size = DONE.unpack_from(record)
    position = DONE.size + size
    worker, reason = record[DONE.size : position].decode() or None, None
    if has_reason:
        length = int.from_bytes(record[position : position + 4])
        reason = record[position + 4 : position + 4 + length].decode()
        position += 4 + length
    started = None if started_at < 0 else int(started_at)
    size = int.from_bytes(record[position : position + 4])
    result = record[position + 4 : position + 4 + size] or None
    return FinishedRecord(STATES[code], int(finished_at), started, attempt, worker, reason, result)


def cancel_reason(packed: bytes) -> str | None:
    if not packed:
        return None
    # Lua packs three values one after the other; the header of a three-item array makes them one value.
    return msgspec.msgpack.decode(b"\x93" + packed, type=CancelRecord).reason


def decode_stamped(packed: bytes, kind: type[T]) -> T:
    (at,) = STAMP.unpack_from(packed)
    return msgspec.structs.replace(msgspec.json.decode(packed[8:], type=kind), at=int(at))


def decode_steps(packed: bytes) -> tuple[Step, ...]:
    found: list[tuple[int, Step]] = []
    for value in split_strings(packed)[1::2]:
        order, started_at, finished_at = STEP.unpack_from(value)
        step = msgspec.json.decode(value[STEP.size :], type=Step)
        finished = None if finished_at < 0 else int(finished_at)
        found.append((order, msgspec.structs.replace(step, started_at=int(started_at), finished_at=finished)))
    return tuple(step for _, step in sorted(found, key=lambda item: item[0]))


def job_view(parts: Sequence[Any], *, full: bool = True) -> Job:
    """The job from the parts that `job_parts` in `_job.lua` lists; without `full`, as in a page, no tracebacks."""
    queue, seq, record, packed_changes, lease, done, external_id, cancel, progress, errors, *more = parts
    lines, step_parts, *parent = more  # only a child has a parent
    created_at, run_at, priority, group, body = unpack_job(record)
    changes = unpack_changes(packed_changes)
    held = unpack_lease_record(lease) if lease else None
    end = unpack_finished(done) if done else None
    failures = [decode_stamped(error, AttemptError) for error in split_strings(errors)]
    if not full:
        failures = [msgspec.structs.replace(error, traceback=None) for error in failures]
    return Job(
        id=body.id,
        kind=body.kind,
        queue=decode_queue(queue),
        group=group,
        priority=priority if changes.priority is None else changes.priority,
        payload=msgspec.Raw(body.payload),
        state=end.state if end else State.RUNNING if held else State.PENDING,
        attempt=end.attempt if end else held.attempt if held else changes.attempts,
        max_attempts=body.max_attempts,
        deaths=changes.deaths,
        timeout_seconds=body.timeout_seconds,
        backoff=body.backoff or DEFAULT_BACKOFF,
        run_at=run_at if changes.run_at is None else changes.run_at,
        sequence=int(seq),
        unique_key=body.unique_key,
        tags=body.tags,
        created_at=created_at,
        started_at=end.started_at if end else held.started_at if held else None,
        finished_at=end.finished_at if end else None,
        worker=end.worker if end else held.worker if held else None,
        external_id=external_id.decode() if external_id else None,
        waiting_for=changes.waiting_for,
        cancel_requested=cancel_reason(cancel) or changes.cancel_requested,
        progress=decode_stamped(progress, Progress) if progress else None,
        result=None if end is None or end.result is None else msgspec.Raw(end.result),
        reason=end.reason if end else None,
        errors=tuple(failures),
        log=tuple(decode_stamped(line, LogLine) for line in split_strings(lines)),
        steps=decode_steps(step_parts),
        parent_id=decode_parent(parent[0]).job_id if parent and parent[0] else None,
        is_workflow=is_workflow(record),
    )
