"""How jobs are written for the server and read back; the layouts are those that the Lua commands name."""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Any
from urllib.parse import unquote

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob, State, UniqueScope
from jobyard.domain.lease import Lease
from jobyard.domain.retry import DEFAULT_BACKOFF, Backoff

HAS_PRIVATE, HAS_ACTIVE_KEY, HAS_MARKS = 1, 2, 4
STATES = (State.PENDING, State.COMPLETED, State.FAILED, State.TIMEOUT, State.CANCELLED, State.RUNNING)
CODES = {state: code for code, state in enumerate(STATES)}
SCOPES = {UniqueScope.ACTIVE: 1, UniqueScope.PERIOD: 2, UniqueScope.FOREVER: 3}

GIVEN = Struct(">BdH")  # flags, priority, length of the group
STORED = Struct(">ddBdH")  # created, run_at, and what was given
LENGTH = Struct(">I")
encode = msgspec.msgpack.Encoder().encode


class Rest(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What only the client reads of a job."""

    id: str
    kind: str
    payload: bytes
    max_attempts: int
    timeout_seconds: float | None = None
    backoff: Backoff | None = None
    unique_key: str | None = None
    tags: tuple[str, ...] = ()


class Past(msgspec.Struct, frozen=True, gc=False, rename={"used": "u", "deaths": "d"}):
    """What a job has behind it, where it differs from a new job's."""

    used: int = 0
    deaths: int = 0
    run_at: Instant | None = msgspec.field(default=None, name="r")
    waiting_for: str | None = msgspec.field(default=None, name="w")
    signal: str | None = msgspec.field(default=None, name="s")
    priority: int | None = msgspec.field(default=None, name="p")


NEW = Past()
_rest = msgspec.msgpack.Decoder(Rest).decode
_past = msgspec.msgpack.Decoder(Past, strict=False).decode


@lru_cache(maxsize=4096)
def queue_name(name: str) -> str:
    """A queue's name inside a key, where braces mean something.

    >>> queue_name("a{b}"), queue_name("täglich")
    ('a%7Bb%7D', 'täglich')
    """
    return name.replace("%", "%25").replace("{", "%7B").replace("}", "%7D") or "%"


@lru_cache(maxsize=4096)
def queue_from(name: bytes) -> str:
    """
    >>> queue_from(queue_name("a{b}%").encode())
    'a{b}%'
    """
    return "" if name == b"%" else unquote(name.decode())


def text(data: bytes) -> msgspec.Raw:
    """Bytes as a MessagePack string: Lua's reader knows no other kind.

    >>> msgspec.msgpack.decode(msgspec.msgpack.encode([text(b"abc")]))
    ['abc']
    """
    size = len(data)
    if size < 32:
        return msgspec.Raw(bytes((0xA0 | size,)) + data)
    return msgspec.Raw(b"\xdb" + LENGTH.pack(size) + data)


def split(data: bytes) -> list[bytes]:
    """
    >>> split(bytes([0, 0, 0, 1]) + b"a" + bytes(4))
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


def pack(job: NewJob) -> bytes:
    """The record of a new job, without the times that the server adds."""
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
    group = (job.group or "").encode()
    return GIVEN.pack(flags, job.priority, len(group)) + group + encode(fields)


def extra(job: NewJob) -> dict[str, Any]:
    """What only some jobs have, for the server."""
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
        found["private"] = text(job.private_payload)
    return found


def is_plain(job: NewJob) -> bool:
    return not (
        job.delay_seconds > 0
        or job.run_at is not None
        or job.unique is not None
        or job.tags
        or job.private_payload is not None
    )


def unpack(value: bytes) -> tuple[Instant, Instant, int, str | None, Rest]:
    """created_at, run_at, priority, group, and the rest"""
    created_at, run_at, _, priority, size = STORED.unpack_from(value)
    end = 27 + size
    return int(created_at), int(run_at), int(priority), value[27:end].decode() or None, _rest(value[end:])


def unpack_past(data: bytes) -> Past:
    return _past(data) if data else NEW


def lease(token: str, queue: str, sequence: int, value: bytes, past: Past = NEW, private: bytes | None = None) -> Lease:
    _, _, _, priority, size = STORED.unpack_from(value)
    end = 27 + size
    rest = _rest(value[end:])
    return Lease(
        rest.id,
        sequence,
        token,
        rest.kind,
        queue,
        value[27:end].decode() if size else None,
        int(priority) if past.priority is None else past.priority,
        past.used + 1,
        rest.max_attempts,
        past.deaths,
        rest.payload,
        private,
        rest.timeout_seconds,
        rest.backoff or DEFAULT_BACKOFF,
        None if past.signal is None else past.signal.encode(),
    )
