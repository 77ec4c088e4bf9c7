"""Events as they travel: CloudEvents in JSON, one per message of a server-sent stream."""

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
_encode = msgspec.json.Encoder().encode


def message(number: int, source: str, kind: str, at: Instant, data: Any = None, subject: str = "") -> bytes:
    """One message of the stream. JSON has no line breaks of its own, so one `data:` line is enough."""
    event = CloudEvent(
        specversion="1.0", id=str(number), source=source, type=kind, time=rfc3339(at), subject=subject, data=data
    )
    return b"id: %d\ndata: %s\n\n" % (number, _encode(event))


def hint_message(number: int, source: str, hint: LiveEvent, now: Instant) -> bytes:
    at = hint.at or now
    if hint.type is LiveEventType.RESYNC:
        return message(number, source, RESYNC, at, subject=hint.job_id)
    progress = None
    if hint.type is LiveEventType.PROGRESS:
        progress = ProgressEventData(percent=hint.percent, message=hint.message or "", data=hint.data)
    news = JobEventData(
        job_id=hint.job_id,
        kind=hint.kind,
        queue=hint.queue,
        group=hint.group,
        state=hint.state,
        attempt=hint.attempt,
        reason=hint.reason,
        progress=progress,
    )
    return message(number, source, job_event_type(hint.type), at, news, hint.job_id)


def queue_message(number: int, source: str, info: QueueInfo, now: Instant) -> bytes:
    return message(number, source, QUEUE_CHANGED, now, queue_view(info), info.name)
