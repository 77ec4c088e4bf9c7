"""Looks at jobs and queues in the store and says what changed: slower than hints, but it misses nothing for long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from jobyard.domain.job import Job, State
from jobyard.live_events.event import LiveEvent, LiveEventType
from jobyard.ports.admin_store import Filter, QueueInfo
from jobyard.ports.store import Store

AT_ONCE = 200
_ENDS = {
    State.COMPLETED: LiveEventType.COMPLETED,
    State.FAILED: LiveEventType.FAILED,
    State.TIMEOUT: LiveEventType.FAILED,
    State.CANCELLED: LiveEventType.CANCELLED,
}


class _Mark(msgspec.Struct):
    """How far a job is known to be."""

    place: tuple[int, int]  # its attempt, and how far that is
    progress: tuple[float | None, str | None]


class JobPoller:
    """The jobs that somebody watches one by one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watchers: Counter[str] = Counter()
        self._marks: dict[str, _Mark] = {}

    def add(self, job: Job) -> None:
        """From how the job was just seen; a later look says what is new since then."""
        self._watchers[job.id] += 1
        self._marks.setdefault(job.id, _mark(job))

    def remove(self, job_id: str) -> None:
        self._watchers[job_id] -= 1
        if self._watchers[job_id] <= 0:
            del self._watchers[job_id]
            self._marks.pop(job_id, None)

    @property
    def ids(self) -> Collection[str]:
        return self._watchers.keys()

    def is_news(self, hint: LiveEvent) -> bool:
        """Whether a hint says more of a watched job than is known; remembers it."""
        mark = self._marks.get(hint.job_id)
        if mark is None or hint.state is None:
            return True
        place = _place(hint.state, hint.attempt)
        progress = (hint.percent, hint.message) if hint.type is LiveEventType.PROGRESS else mark.progress
        if place < mark.place or (place == mark.place and progress == mark.progress):
            return False
        mark.place, mark.progress = place, progress
        return True

    async def look(self, ids: Collection[str]) -> list[LiveEvent]:
        """What changed since the last look, or since the last hint."""
        wanted = [job_id for job_id in ids if job_id in self._watchers]
        found: list[LiveEvent] = []
        for start in range(0, len(wanted), AT_ONCE):
            some = wanted[start : start + AT_ONCE]
            jobs = await jobs_by_id(self._store, some)
            for job_id in some:
                found += self._compare(job_id, jobs.get(job_id))
        return found

    def _compare(self, job_id: str, job: Job | None) -> list[LiveEvent]:
        before = self._marks.get(job_id)
        if before is None:
            return []  # nobody watches it any more, or it is known to be gone
        if job is None:
            del self._marks[job_id]
            return [LiveEvent(type=LiveEventType.RESYNC, job_id=job_id)]
        now = _mark(job)
        self._marks[job_id] = now
        found: list[LiveEvent] = []
        if now.place != before.place:
            found.append(live_event_of(job))
        if now.progress != before.progress and job.progress is not None:
            progress = live_event_of(job, LiveEventType.PROGRESS)
            found = [progress, *found] if job.state.is_final else [*found, progress]
        return found


async def jobs_by_id(store: Store, ids: Sequence[str]) -> dict[str, Job]:
    """Those of these jobs that are there; at most AT_ONCE."""
    found: dict[str, Job] = {}
    cursor: str | None = None
    while True:
        page = await store.find(Filter(ids=tuple(ids)), AT_ONCE, cursor)
        found.update((job.id, job) for job in page.jobs)
        cursor = page.cursor
        if cursor is None:
            return found


class QueuePoller:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, QueueInfo] = {}

    async def look(self) -> list[QueueInfo]:
        """The queues whose counts, settings or pause changed since the last look; all of them at the first."""
        now = {info.name: info for info in await self._store.queues()}
        changed = [info for name, info in now.items() if self._known.get(name) != info]
        self._known = now
        return changed


def live_event_of(job: Job, what: LiveEventType | None = None) -> LiveEvent:
    """What a job's present state says."""
    at = job.finished_at or job.started_at or job.created_at
    told = job.progress if what is LiveEventType.PROGRESS else None
    return LiveEvent(
        type=what or _what(job),
        at=at if told is None else told.at,
        job_id=job.id,
        kind=job.kind,
        queue=job.queue,
        group=job.group,
        state=job.state,
        attempt=job.attempt,
        reason=job.reason,
        percent=None if told is None else told.percent,
        message=None if told is None else told.message,
        data=None if told is None else told.data,
    )


def _what(job: Job) -> LiveEventType:
    if job.state is State.RUNNING:
        return LiveEventType.STARTED
    if job.state is State.PENDING:
        return LiveEventType.RETRYING if job.attempt else LiveEventType.ENQUEUED
    return _ENDS[job.state]


def _place(state: State, attempt: int) -> tuple[int, int]:
    # A job that waits again after an attempt is further than when that attempt ran.
    return attempt, 1 if state is State.RUNNING else 2 if state is State.PENDING else 3


def _mark(job: Job) -> _Mark:
    told = job.progress
    return _Mark(_place(job.state, job.attempt), (None, None) if told is None else (told.percent, told.message))
