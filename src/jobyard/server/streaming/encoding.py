"""Encoding of live events: CloudEvents as JSON, one per server-sent message."""

from __future__ import annotations

from typing import Any

import msgspec

from jobyard.api.convert import queue_view
from jobyard.api.schemas.events import (
    QUEUE_CHANGED,
    RESYNC,
    CloudEvent,
    JobEventData,
    ProgressEventData,
    job_event_type,
)
from jobyard.domain.instant import Instant, rfc3339
from jobyard.live_events.event import LiveEvent, LiveEventType
from jobyard.ports.admin_store import QueueInfo

RETRY = b"retry: 2000\n\n"
PING = b": ping\n\n"
# For clients that asked for them: browsers do not show comments to scripts.
VISIBLE_PING = b"event: ping\ndata: {}\n\n"
ACCESS_ENDED = b"event: access_ended\ndata: {}\n\n"
_encode = msgspec.json.Encoder().encode


def message(number: int, source: str, kind: str, at: Instant, data: Any = None, subject: str = "") -> bytes:
    """One server-sent message. Encoded JSON has no line breaks, so one `data:` line is enough."""
    event = CloudEvent(
        specversion="1.0", id=str(number), source=source, type=kind, time=rfc3339(at), subject=subject, data=data
    )
    return b"id: %d\ndata: %s\n\n" % (number, _encode(event))


def live_event_message(number: int, source: str, event: LiveEvent, now: Instant) -> bytes:
    at = event.at or now
    if event.type is LiveEventType.RESYNC:
        return message(number, source, RESYNC, at, subject=event.job_id)
    progress = None
    if event.type is LiveEventType.PROGRESS:
        progress = ProgressEventData(percent=event.percent, message=event.message or "", data=event.data)
    data = JobEventData(
        job_id=event.job_id,
        kind=event.kind,
        queue=event.queue,
        group=event.group,
        state=event.state,
        attempt=event.attempt,
        reason=event.reason,
        progress=progress,
    )
    return message(number, source, job_event_type(event.type), at, data, event.job_id)


def queue_message(number: int, source: str, info: QueueInfo, now: Instant) -> bytes:
    return message(number, source, QUEUE_CHANGED, now, queue_view(info), info.name)
