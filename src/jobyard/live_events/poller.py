"""Polls jobs and queues for changes: slower than live events, but it misses no change for long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from jobyard.domain.job import Job, State
from jobyard.live_events.event import LiveEvent, LiveEventType
from jobyard.ports.admin_store import Filter, QueueInfo
from jobyard.ports.store import Store

BATCH = 200
_FINAL_TYPES = {
    State.COMPLETED: LiveEventType.COMPLETED,
    State.FAILED: LiveEventType.FAILED,
    State.TIMEOUT: LiveEventType.FAILED,
    State.CANCELLED: LiveEventType.CANCELLED,
}


class _Seen(msgspec.Struct):
    """The newest known state of a job."""

    stage: tuple[int, int]  # its attempt, and how far that is
    progress: tuple[float | None, str | None]


class JobPoller:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._watchers: Counter[str] = Counter()
        self._seen: dict[str, _Seen] = {}

    def add(self, job: Job) -> None:
        """Watch the job from the given state on."""
        self._watchers[job.id] += 1
        self._seen.setdefault(job.id, _seen(job))

    def remove(self, job_id: str) -> None:
        self._watchers[job_id] -= 1
        if self._watchers[job_id] <= 0:
            del self._watchers[job_id]
            self._seen.pop(job_id, None)

    @property
    def ids(self) -> Collection[str]:
        return self._watchers.keys()

    def is_new(self, event: LiveEvent) -> bool:
        """Whether an event is newer than what is known of its job; if so, it is known from now on."""
        seen = self._seen.get(event.job_id)
        if seen is None or event.state is None:
            return True
        stage = _stage(event.state, event.attempt)
        progress = (event.percent, event.message) if event.type is LiveEventType.PROGRESS else seen.progress
        if stage < seen.stage or (stage == seen.stage and progress == seen.progress):
            return False
        seen.stage, seen.progress = stage, progress
        return True

    async def poll(self, ids: Collection[str]) -> list[LiveEvent]:
        """The changes since the last poll, or since the last event."""
        wanted = [job_id for job_id in ids if job_id in self._watchers]
        found: list[LiveEvent] = []
        for start in range(0, len(wanted), BATCH):
            batch = wanted[start : start + BATCH]
            jobs = await jobs_by_id(self._store, batch)
            for job_id in batch:
                found += self._compare(job_id, jobs.get(job_id))
        return found

    def _compare(self, job_id: str, job: Job | None) -> list[LiveEvent]:
        before = self._seen.get(job_id)
        if before is None:
            return []  # no longer watched, or already known to be gone
        if job is None:
            del self._seen[job_id]
            return [LiveEvent(type=LiveEventType.RESYNC, job_id=job_id)]
        now = _seen(job)
        self._seen[job_id] = now
        found: list[LiveEvent] = []
        if now.stage != before.stage:
            found.append(live_event_of(job))
        if now.progress != before.progress and job.progress is not None:
            progress = live_event_of(job, LiveEventType.PROGRESS)
            found = [progress, *found] if job.state.is_final else [*found, progress]
        return found


async def jobs_by_id(store: Store, ids: Sequence[str]) -> dict[str, Job]:
    """The jobs with these ids that exist; at most BATCH ids."""
    found: dict[str, Job] = {}
    cursor: str | None = None
    while True:
        page = await store.find(Filter(ids=tuple(ids)), BATCH, cursor)
        found.update((job.id, job) for job in page.jobs)
        cursor = page.cursor
        if cursor is None:
            return found


class QueuePoller:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, QueueInfo] = {}

    async def poll(self) -> list[QueueInfo]:
        """The queues whose counts, settings or pause changed since the last poll; all of them at first."""
        now = {info.name: info for info in await self._store.queues()}
        changed = [info for name, info in now.items() if self._known.get(name) != info]
        self._known = now
        return changed


def live_event_of(job: Job, type: LiveEventType | None = None) -> LiveEvent:
    """The event of a job's present state."""
    at = job.finished_at or job.started_at or job.created_at
    progress = job.progress if type is LiveEventType.PROGRESS else None
    return LiveEvent(
        type=type or _type(job),
        at=at if progress is None else progress.at,
        job_id=job.id,
        kind=job.kind,
        queue=job.queue,
        group=job.group,
        state=job.state,
        attempt=job.attempt,
        reason=job.reason,
        percent=None if progress is None else progress.percent,
        message=None if progress is None else progress.message,
        data=None if progress is None else progress.data,
    )


def _type(job: Job) -> LiveEventType:
    if job.state is State.RUNNING:
        return LiveEventType.STARTED
    if job.state is State.PENDING:
        return LiveEventType.RETRYING if job.attempt else LiveEventType.ENQUEUED
    return _FINAL_TYPES[job.state]


def _stage(state: State, attempt: int) -> tuple[int, int]:
    # A job that waits again after an attempt is further than it was while that attempt ran.
    return attempt, 1 if state is State.RUNNING else 2 if state is State.PENDING else 3


def _seen(job: Job) -> _Seen:
    progress = job.progress
    return _Seen(
        _stage(job.state, job.attempt), (None, None) if progress is None else (progress.percent, progress.message)
    )
