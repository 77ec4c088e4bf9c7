"""What an event of a worker means to somebody who follows jobs from afar."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from jobyard.domain import events as e
from jobyard.domain.instant import Instant
from jobyard.domain.job import Ending, State
from jobyard.domain.lease import ExpiredLease, Lease
from jobyard.live_events.event import LiveEvent, LiveEventType

# A hint is small: who wants all of it asks the store.
MOST_DATA_BYTES = 4096
MOST_LETTERS = 500
ENDS = {
    State.COMPLETED: LiveEventType.COMPLETED,
    State.FAILED: LiveEventType.FAILED,
    State.TIMEOUT: LiveEventType.FAILED,
    State.CANCELLED: LiveEventType.CANCELLED,
    State.PENDING: LiveEventType.RETRYING,
}


def live_events_of(event: e.Event, now: Instant) -> Iterator[LiveEvent]:
    match event:
        case e.JobStarted(lease):
            yield _hint(LiveEventType.STARTED, lease, now, State.RUNNING)
        case e.JobReported(lease, progress):
            yield _hint(
                LiveEventType.PROGRESS,
                lease,
                now,
                State.RUNNING,
                percent=progress.percent,
                message=progress.message[:MOST_LETTERS],
                data=_small(progress.data),
            )
        case e.JobSettled(lease, to, _, message, _) if to in ENDS:
            yield _hint(ENDS[to], lease, now, to, reason=None if message is None else message[:MOST_LETTERS])
        case e.LeasesExpired(_, ended):
            for one in ended:
                yield _lost(one, now)


def _hint(what: LiveEventType, lease: Lease, now: Instant, state: State, **more: Any) -> LiveEvent:
    return LiveEvent(
        type=what,
        at=now,
        job_id=lease.job_id,
        kind=lease.kind,
        queue=lease.queue,
        group=lease.group,
        state=state,
        attempt=lease.attempt,
        **more,
    )


def _lost(ended: ExpiredLease, now: Instant) -> LiveEvent:
    """Whether a lost job runs again or was to be cancelled is not known here; that it was put away is."""
    error = ended.error
    is_put_away = error.ending is Ending.QUARANTINED
    return LiveEvent(
        type=LiveEventType.FAILED if is_put_away else LiveEventType.RETRYING,
        at=now,
        job_id=ended.job_id,
        queue=ended.queue,
        group=ended.group,
        state=State.FAILED if is_put_away else None,
        attempt=error.attempt,
        reason=error.message[:MOST_LETTERS],
    )


def _small(data: Any) -> Any:
    """
    >>> _small({"rows": 7}), _small("x" * 5000)
    ({'rows': 7}, None)
    """
    return data if data is None or len(msgspec.json.encode(data)) <= MOST_DATA_BYTES else None
