"""Events as they travel: CloudEvents in JSON, one per message of a server-sent stream."""

from __future__ import annotations

from typing import Any

import msgspec

from jobyard.domain.hint import Hint, What
from jobyard.domain.instant import Instant, rfc3339
from jobyard.ports.store import QueueInfo
from jobyard.service.views import queue_view

SNAPSHOT = "io.jobyard.snapshot.v1"
QUEUE_CHANGED = "io.jobyard.queue.changed.v1"
RESYNC = "io.jobyard.resync.v1"
RETRY = b"retry: 2000\n\n"
PING = b": ping\n\n"
_encode = msgspec.json.Encoder().encode


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    specversion: str
    id: str
    source: str
    type: str
    time: str
    subject: str = ""
    data: Any = None


class JobNews(msgspec.Struct, frozen=True, kw_only=True):
    """What an event tells of a job; the job itself tells more."""

    job_id: str
    kind: str
    queue: str
    group: str | None
    state: str | None
    attempt: int
    reason: str | None = None
    progress: Any = None


def message(number: int, source: str, kind: str, at: Instant, data: Any = None, subject: str = "") -> bytes:
    """One message of the stream. JSON has no line breaks of its own, so one `data:` line is enough."""
    event = CloudEvent(
        specversion="1.0", id=str(number), source=source, type=kind, time=rfc3339(at), subject=subject, data=data
    )
    return b"id: %d\ndata: %s\n\n" % (number, _encode(event))


def hint_message(number: int, source: str, hint: Hint, now: Instant) -> bytes:
    at = hint.at or now
    if hint.what is What.RESYNC:
        return message(number, source, RESYNC, at, subject=hint.job_id)
    progress = None
    if hint.what is What.PROGRESS:
        progress = {"percent": hint.percent, "message": hint.message or "", "data": hint.data}
    news = JobNews(
        job_id=hint.job_id,
        kind=hint.kind,
        queue=hint.queue,
        group=hint.group,
        state=hint.state,
        attempt=hint.attempt,
        reason=hint.reason,
        progress=progress,
    )
    return message(number, source, f"io.jobyard.job.{hint.what}.v1", at, news, hint.job_id)


def queue_message(number: int, source: str, info: QueueInfo, now: Instant) -> bytes:
    return message(number, source, QUEUE_CHANGED, now, queue_view(info), info.name)
