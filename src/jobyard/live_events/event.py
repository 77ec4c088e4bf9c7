"""Live events and how they are stored. They may get lost: the state in the store is authoritative."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import State

# Batches of events are short-lived records here, ordered by key: see `event_key`.
COLLECTION = "jobyard.events"
KEPT_SECONDS = 15.0
# Each listening process keeps a record alive here; publishers publish only while there is one.
LISTENERS = "jobyard.listeners"
LISTENER_SECONDS = 10.0
# A publisher that last looked for listeners longer ago than this looks again before it drops an event.
NOTICE_SECONDS = 0.1


class LiveEventType(StrEnum):
    ENQUEUED = "enqueued"
    STARTED = "started"
    PROGRESS = "progress"
    COMPLETED = "completed"
    FAILED = "failed"  # for good: FAILED or TIMEOUT
    RETRYING = "retrying"  # an attempt ended, and the job will run again
    CANCELLED = "cancelled"
    RESYNC = "resync"  # events were dropped: read the state from the store


class LiveEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, rename={"type": "what"}):
    """One event of a job. A RESYNC may have no job."""

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
unpack = msgspec.json.Decoder(tuple[LiveEvent, ...]).decode


def event_key(now: Instant, source: str, counter: int) -> str:
    """The key of a batch: the store's time comes first, so that later batches sort later.

    >>> event_key(1_700_000_000_000, "w1", 7)
    '001700000000000.w1.000000007'
    """
    return f"{now:015d}.{source}.{counter:09d}"


def keys_since(instant: Instant) -> str:
    """A key that sorts before all keys of that instant and later ones.

    >>> keys_since(1_700_000_000_000) < event_key(1_700_000_000_000, "a", 0)
    True
    """
    return f"{max(0, instant):015d}"


def pack(events: tuple[LiveEvent, ...]) -> bytes:
    return _encode(events)
