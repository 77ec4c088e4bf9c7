"""Translation of a worker's events into live events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from jobyard.domain import events as e
from jobyard.domain.instant import Instant
from jobyard.domain.job import Ending, State
from jobyard.domain.lease import ExpiredLease, Lease
from jobyard.live_events.event import LiveEvent, LiveEventType

# Live events stay small; the full data is in the store.
MAX_DATA_BYTES = 4096
MAX_TEXT = 500
TYPES = {
    State.COMPLETED: LiveEventType.COMPLETED,
    State.FAILED: LiveEventType.FAILED,
    State.TIMEOUT: LiveEventType.FAILED,
    State.CANCELLED: LiveEventType.CANCELLED,
    State.PENDING: LiveEventType.RETRYING,
}


def live_events_of(event: e.Event, now: Instant) -> Iterator[LiveEvent]:
    match event:
        case e.JobStarted(lease):
            yield _of_lease(LiveEventType.STARTED, lease, now, State.RUNNING)
        case e.JobReported(lease, progress):
            message, data = progress.message[:MAX_TEXT], _small(progress.data)
            more = {"percent": progress.percent, "message": message, "data": data}
            yield _of_lease(LiveEventType.PROGRESS, lease, now, State.RUNNING, **more)
        case e.JobSettled(lease, to, _, message, _) if to in TYPES:
            yield _of_lease(TYPES[to], lease, now, to, reason=None if message is None else message[:MAX_TEXT])
        case e.LeasesExpired(_, leases):
            for expired in leases:
                yield _of_expired(expired, now)


def _of_lease(type: LiveEventType, lease: Lease, now: Instant, state: State, **more: Any) -> LiveEvent:
    return LiveEvent(
        type=type,
        at=now,
        job_id=lease.job_id,
        kind=lease.kind,
        queue=lease.queue,
        group=lease.group,
        state=state,
        attempt=lease.attempt,
        **more,
    )


def _of_expired(lease: ExpiredLease, now: Instant) -> LiveEvent:
    """Whether the job runs again or is cancelled is not known here, only whether it was quarantined."""
    error = lease.error
    is_quarantined = error.ending is Ending.QUARANTINED
    return LiveEvent(
        type=LiveEventType.FAILED if is_quarantined else LiveEventType.RETRYING,
        at=now,
        job_id=lease.job_id,
        queue=lease.queue,
        group=lease.group,
        state=State.FAILED if is_quarantined else None,
        attempt=error.attempt,
        reason=error.message[:MAX_TEXT],
    )


def _small(data: Any) -> Any:
    """The data, or None if it is too large.

    >>> _small({"rows": 7}), _small("x" * 5000)
    ({'rows': 7}, None)
    """
    return data if data is None or len(msgspec.json.encode(data)) <= MAX_DATA_BYTES else None
