"""Rules of `ScheduleStore.decide`, for stores that evaluate ticks in Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob
from jobyard.domain.schedule import Verdict
from jobyard.ports.schedule_store import ArmedSchedule, Decided, Decision, Tick


class TickBatch:
    """The ticks of one `decide` call. Each is evaluated as if the earlier ones had been stored; nothing is written.

    `holder` returns the id of the job that holds a job's unique key. `is_full` tells whether a queue, or one of its
    groups, has no room for the given number of additional jobs.
    """

    def __init__(
        self,
        armed: Mapping[str, ArmedSchedule],
        holder: Callable[[NewJob], str | None],
        is_full: Callable[[str, str | None, int], bool],
    ) -> None:
        self.jobs: list[NewJob] = []  # to be inserted
        self.decided_until: dict[str, Instant] = {}  # the last instant that was MADE, by schedule
        self._armed = armed
        self._stored_holder = holder
        self._is_full = is_full
        self._stopped: dict[str, Decision] = {}
        self._held_keys: dict[tuple[str, str], str] = {}
        self._added: Counter[tuple[str, str | None]] = Counter()

    def decide(self, tick: Tick) -> Decided:
        armed = self._armed.get(tick.schedule)
        if armed is None or armed.revision != tick.revision:
            return Decided(Decision.STALE)
        if tick.at <= self.decided_until.get(tick.schedule, armed.decided_until):
            return Decided(Decision.KNOWN)
        # A later tick that is MADE would move `decided_until` past a tick that has to wait, and lose it.
        stopped = self._stopped.get(tick.schedule)
        decided = Decided(stopped) if stopped is not None else self._make(tick)
        if decided.decision is Decision.MADE:
            self.decided_until[tick.schedule] = tick.at
        else:
            self._stopped[tick.schedule] = decided.decision
        return decided

    def _make(self, tick: Tick) -> Decided:
        job = tick.job
        if job is None:
            return Decided(Decision.MADE, tick.verdict)
        holder = self._holder(job)
        if holder is not None and tick.skip_if_held:
            return Decided(Decision.MADE, Verdict.SKIPPED, holder)
        if holder is not None:
            return Decided(Decision.HELD)
        if not self._has_room(job):
            return Decided(Decision.FULL)
        self._add(job)
        return Decided(Decision.MADE, tick.verdict, job.id)

    def _holder(self, job: NewJob) -> str | None:
        if job.unique is None:
            return None
        return self._held_keys.get((job.queue, job.unique.key)) or self._stored_holder(job)

    def _has_room(self, job: NewJob) -> bool:
        if self._is_full(job.queue, None, self._added[job.queue, None] + 1):
            return False
        return job.group is None or not self._is_full(job.queue, job.group, self._added[job.queue, job.group] + 1)

    def _add(self, job: NewJob) -> None:
        self.jobs.append(job)
        # The count of the whole queue is kept under group None.
        self._added.update({(job.queue, None), (job.queue, job.group)})
        if job.unique is not None:
            self._held_keys[job.queue, job.unique.key] = job.id
