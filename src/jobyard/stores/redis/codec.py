"""Encoding of jobs for the server and back; the layouts are documented in the Lua files that read them."""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Any
from urllib.parse import unquote

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob, Parent, State, UniqueScope
from jobyard.domain.lease import Lease
from jobyard.domain.retry import DEFAULT_BACKOFF, Backoff

HAS_PRIVATE, HAS_ACTIVE_KEY, HAS_MARKS, IS_CHILD, IS_WORKFLOW = 1, 2, 4, 16, 32
STATES = (State.PENDING, State.COMPLETED, State.FAILED, State.TIMEOUT, State.CANCELLED, State.RUNNING)
CODES = {state: code for code, state in enumerate(STATES)}
SCOPES = {UniqueScope.ACTIVE: 1, UniqueScope.PERIOD: 2, UniqueScope.FOREVER: 3}

NEW_JOB = Struct(">BdH")  # flags, priority, length of the group
STORED_JOB = Struct(">ddBdH")  # created, run_at, then as NEW_JOB
LENGTH = Struct(">I")
encode = msgspec.msgpack.Encoder().encode


class JobBody(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The part of a job record that Lua does not read."""

    id: str
    kind: str
    payload: bytes
    max_attempts: int
    timeout_seconds: float | None = None
    backoff: Backoff | None = None
    unique_key: str | None = None
    tags: tuple[str, ...] = ()


class JobChanges(msgspec.Struct, frozen=True, gc=False, rename={"attempts": "u", "deaths": "d"}):
    """What changed since the insert; stored only for jobs that differ from a new one."""

    attempts: int = 0
    deaths: int = 0
    run_at: Instant | None = msgspec.field(default=None, name="r")
    waiting_for: str | None = msgspec.field(default=None, name="w")
    signal: str | None = msgspec.field(default=None, name="s")
    priority: int | None = msgspec.field(default=None, name="p")
    cancel_requested: str | None = msgspec.field(default=None, name="c")  # carried over from an earlier attempt


UNCHANGED = JobChanges()
_decode_body = msgspec.msgpack.Decoder(JobBody).decode
_decode_changes = msgspec.msgpack.Decoder(JobChanges, strict=False).decode
decode_parent = msgspec.json.Decoder(Parent).decode


@lru_cache(maxsize=4096)
def encode_queue(name: str) -> str:
    """The name of a queue for use in a key, where braces mark the hash tag.

    >>> encode_queue("a{b}"), encode_queue("täglich")
    ('a%7Bb%7D', 'täglich')
    """
    return name.replace("%", "%25").replace("{", "%7B").replace("}", "%7D") or "%"


@lru_cache(maxsize=4096)
def decode_queue(name: bytes) -> str:
    """
    >>> decode_queue(encode_queue("a{b}%").encode())
    'a{b}%'
    """
    return "" if name == b"%" else unquote(name.decode())


def as_string(data: bytes) -> msgspec.Raw:
    """Bytes as a MessagePack string: cmsgpack of Redis does not decode the binary type.

    >>> msgspec.msgpack.decode(msgspec.msgpack.encode([as_string(b"abc")]))
    ['abc']
    """
    size = len(data)
    if size < 32:
        return msgspec.Raw(bytes((0xA0 | size,)) + data)
    return msgspec.Raw(b"\xdb" + LENGTH.pack(size) + data)


def split_strings(data: bytes) -> list[bytes]:
    """The strings that `join` in Lua packed, each behind its length.

    >>> split_strings(bytes([0, 0, 0, 1]) + b"a" + bytes(4))
    [b'a', b'']
    """
    parts: list[bytes] = []
    position = 0
    while position < len(data):
        (size,) = LENGTH.unpack_from(data, position)
        parts.append(data[position + 4 : position + 4 + size])
        position += 4 + size
    return parts


def milliseconds(seconds: float) -> int:
    return round(min(max(seconds, 0.0), 1e12) * 1000)


def pack_job(job: NewJob) -> bytes:
    """The record of a new job, without the times, which the server adds."""
    unique, flags = job.unique, 0
    fields: tuple[Any, ...] = (job.id, job.kind, job.payload, job.max_attempts)
    plain_backoff = job.backoff is DEFAULT_BACKOFF
    if unique is not None or job.tags:
        flags = HAS_MARKS
        if unique is not None and unique.scope is UniqueScope.ACTIVE:
            flags |= HAS_ACTIVE_KEY
        key = None if unique is None else unique.key
        fields = (*fields, job.timeout_seconds, None if plain_backoff else job.backoff, key, job.tags)
    elif not plain_backoff:
        fields = (*fields, job.timeout_seconds, job.backoff)
    elif job.timeout_seconds is not None:
        fields = (*fields, job.timeout_seconds)
    if job.private_payload is not None:
        flags |= HAS_PRIVATE
    if job.parent is not None:
        flags |= IS_CHILD
    if job.is_workflow:
        flags |= IS_WORKFLOW
    group = (job.group or "").encode()
    return NEW_JOB.pack(flags, job.priority, len(group)) + group + encode(fields)


def job_options(job: NewJob) -> dict[str, Any]:
    """The fields that Lua reads and only some jobs have."""
    found: dict[str, Any] = {}
    if job.run_at is not None:
        found["at"] = job.run_at
    elif job.delay_seconds > 0:
        found["delay"] = milliseconds(job.delay_seconds)
    if job.unique is not None:
        found |= {"key": job.unique.key, "scope": SCOPES[job.unique.scope]}
        found["period"] = milliseconds(job.unique.period_seconds or 0.0)
    if job.unique is not None or job.tags:
        unique = [] if job.unique is None else [f"u{job.unique.key}"]
        found["index"] = [*unique, *(f"t{tag}" for tag in dict.fromkeys(job.tags))]
    if job.private_payload is not None:
        found["private"] = as_string(job.private_payload)
    if job.parent is not None:
        found["parent"] = as_string(msgspec.json.encode(job.parent))
    return found


def has_options(job: NewJob) -> bool:
    return bool(
        job.delay_seconds > 0
        or job.run_at is not None
        or job.unique is not None
        or job.tags
        or job.private_payload is not None
        or job.parent is not None
    )


def unpack_job(record: bytes) -> tuple[Instant, Instant, int, str | None, JobBody]:
    """created_at, run_at, priority, group, body"""
    created_at, run_at, _, priority, size = STORED_JOB.unpack_from(record)
    end = 27 + size
    return int(created_at), int(run_at), int(priority), record[27:end].decode() or None, _decode_body(record[end:])


def is_workflow(record: bytes) -> bool:
    return bool(record[16] & IS_WORKFLOW)


def unpack_changes(data: bytes) -> JobChanges:
    return _decode_changes(data) if data else UNCHANGED


def unpack_lease(
    token: str,
    queue: str,
    sequence: int,
    record: bytes,
    changes: JobChanges = UNCHANGED,
    private: bytes | None = None,
    parent: Parent | None = None,
) -> Lease:
    _, _, flags, priority, size = STORED_JOB.unpack_from(record)
    end = 27 + size
    body = _decode_body(record[end:])
    return Lease(
        body.id,
        sequence,
        token,
        body.kind,
        queue,
        record[27:end].decode() if size else None,
        int(priority) if changes.priority is None else changes.priority,
        changes.attempts + 1,
        body.max_attempts,
        changes.deaths,
        body.payload,
        private,
        body.timeout_seconds,
        body.backoff or DEFAULT_BACKOFF,
        None if changes.signal is None else changes.signal.encode(),
        flags >= IS_WORKFLOW,
        parent,
        changes.cancel_requested,
    )
