"""A job as people see it, put together from the parts that the server keeps apart."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, NamedTuple, TypeVar

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import AttemptError, Job, LogLine, Progress, State, Step
from jobyard.domain.retry import DEFAULT_BACKOFF
from jobyard.stores.redis.packing import STATES, queue_from, split, unpack, unpack_past

T = TypeVar("T", AttemptError, LogLine, Progress)

STAMP = Struct(">d")
STEP = Struct(">Idd")  # order, started, finished
DONE = Struct(">BBddIH")  # state, has a reason, finished, started, attempt, length of the worker
LEASE_HEAD = Struct(">16sdH")  # token, started, length of the worker
LEASE_TAIL = Struct(">IBH")  # attempt, flags, length of the group


class Held(NamedTuple):
    token: str
    started_at: Instant
    worker: str
    attempt: int
    group: str | None


class End(NamedTuple):
    state: State
    finished_at: Instant
    started_at: Instant | None
    attempt: int
    worker: str | None
    reason: str | None
    result: bytes | None


class Asked(msgspec.Struct, array_like=True):
    """A wish to stop, as the server keeps it."""

    worker: str
    job_id: str
    reason: str


def held(record: bytes) -> Held:
    token, started_at, size = LEASE_HEAD.unpack_from(record)
    end = LEASE_HEAD.size + size
    attempt, _, length = LEASE_TAIL.unpack_from(record, end)
    start = end + LEASE_TAIL.size
    group = record[start : start + length].decode() or None
    worker = record[LEASE_HEAD.size : end].decode()
    return Held(token.decode(), int(started_at), worker, attempt, group)


def end_of(record: bytes) -> End:
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
    return End(STATES[code], int(finished_at), started, attempt, worker, reason, result)


def wish(packed: bytes) -> str | None:
    """The reason for which a job was asked to stop: the last of three strings."""
    if not packed:
        return None
    # Three values one after the other; a head for three makes them a list.
    return msgspec.msgpack.decode(b"\x93" + packed, type=Asked).reason


def stamped(packed: bytes, kind: type[T]) -> T:
    (at,) = STAMP.unpack_from(packed)
    return msgspec.structs.replace(msgspec.json.decode(packed[8:], type=kind), at=int(at))


def steps(packed: bytes) -> tuple[Step, ...]:
    found: list[tuple[int, Step]] = []
    for value in split(packed)[1::2]:
        order, started_at, finished_at = STEP.unpack_from(value)
        step = msgspec.json.decode(value[STEP.size :], type=Step)
        finished = None if finished_at < 0 else int(finished_at)
        found.append((order, msgspec.structs.replace(step, started_at=int(started_at), finished_at=finished)))
    return tuple(step for _, step in sorted(found, key=lambda item: item[0]))


def seen(parts: Sequence[Any], *, whole: bool = True) -> Job:
    """The job of the parts that `see` in `_job.lua` lists; a list shows it without the long parts."""
    (queue, seq, value, past_packed, lease, done, outside, stop, progress, errors, lines, step_parts) = parts
    created_at, run_at, priority, group, rest = unpack(value)
    past = unpack_past(past_packed)
    hold = held(lease) if lease else None
    end = end_of(done) if done else None
    failures = [stamped(error, AttemptError) for error in split(errors)]
    if not whole:
        failures = [msgspec.structs.replace(error, traceback=None) for error in failures]
    return Job(
        id=rest.id,
        kind=rest.kind,
        queue=queue_from(queue),
        group=group,
        priority=priority if past.priority is None else past.priority,
        payload=msgspec.Raw(rest.payload),
        state=end.state if end else State.RUNNING if hold else State.PENDING,
        attempt=end.attempt if end else hold.attempt if hold else past.used,
        max_attempts=rest.max_attempts,
        deaths=past.deaths,
        timeout_seconds=rest.timeout_seconds,
        backoff=rest.backoff or DEFAULT_BACKOFF,
        run_at=run_at if past.run_at is None else past.run_at,
        sequence=int(seq),
        unique_key=rest.unique_key,
        tags=rest.tags,
        created_at=created_at,
        started_at=end.started_at if end else hold.started_at if hold else None,
        finished_at=end.finished_at if end else None,
        worker=end.worker if end else hold.worker if hold else None,
        external_id=outside.decode() if outside else None,
        waiting_for=past.waiting_for,
        cancel_requested=wish(stop),
        progress=stamped(progress, Progress) if progress else None,
        result=None if end is None or end.result is None else msgspec.Raw(end.result),
        reason=end.reason if end else None,
        errors=tuple(failures),
        log=tuple(stamped(line, LogLine) for line in split(lines)),
        steps=steps(step_parts),
    )
