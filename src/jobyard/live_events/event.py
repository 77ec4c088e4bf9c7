"""What other processes are told of a job's life while somebody looks on; the store stays the truth."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import State

# Batches of hints are records here, for a short while: the key is what orders them, see `event_key`.
COLLECTION = "jobyard.events"
KEPT_SECONDS = 15.0
# Somebody listens as long as there is a record here; whoever listens keeps one alive.
LISTENERS = "jobyard.listeners"
LISTENER_SECONDS = 10.0
# Whoever has something to tell, and last looked for listeners longer ago than this, looks again before it drops it.
NOTICE_SECONDS = 0.1


class LiveEventType(StrEnum):
    ENQUEUED = "enqueued"
    STARTED = "started"
    PROGRESS = "progress"
    COMPLETED = "completed"
    FAILED = "failed"  # for good: FAILED or TIMEOUT
    RETRYING = "retrying"  # an attempt ended, and the job will run again
    CANCELLED = "cancelled"
    RESYNC = "resync"  # hints were dropped: look at the store anew


class LiveEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, rename={"type": "what"}):
    """One thing that happened. A RESYNC has no job."""

    type: LiveEventType
    at: Instant = 0
    job_id: str = ""
    kind: str = ""
    queue: str = ""
    group: str | None = None
    state: State | None = None
    attempt: int = 0
    reason: str | None = None
    percent: float | None = None
    message: str | None = None
    data: Any = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[LiveEvent, ...]).decode


def event_key(now: Instant, source: str, counter: int) -> str:
    """By the store's time first, so that whoever reads by key reads what is new.

    >>> event_key(1_700_000_000_000, "w1", 7)
    '001700000000000.w1.000000007'
    """
    return f"{now:015d}.{source}.{counter:09d}"


def keys_since(instant: Instant) -> str:
    """A key before all of that instant and later.

    >>> keys_since(1_700_000_000_000) < event_key(1_700_000_000_000, "a", 0)
    True
    """
    return f"{max(0, instant):015d}"


def pack(hints: tuple[LiveEvent, ...]) -> bytes:
    return _encode(hints)


def unpack(data: bytes) -> tuple[LiveEvent, ...]:
    return _decode(data)
