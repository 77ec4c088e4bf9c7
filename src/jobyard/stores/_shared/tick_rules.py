"""The rule of ticks, for the stores that judge them one by one: all of a call before anything of it is changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob
from jobyard.domain.schedule import Verdict
from jobyard.ports.schedule_store import Armed, Decided, Decision, Tick


class Deciding:
    """One call. It remembers what its earlier ticks will have changed.

    `holder` answers who holds a job's unique key; `is_full` whether so many more jobs are too many for a queue, or for
    one of its groups.
    """

    def __init__(
        self,
        armed: Mapping[str, Armed],
        holder: Callable[[NewJob], str | None],
        is_full: Callable[[str, str | None, int], bool],
    ) -> None:
        self.jobs: list[NewJob] = []  # to be inserted
        self.until: dict[str, Instant] = {}  # the last instant that was made, by schedule
        self._armed = armed
        self._stored_holder = holder
        self._is_full = is_full
        self._stopped: dict[str, Decision] = {}
        self._taken: dict[tuple[str, str], str] = {}
        self._more: Counter[tuple[str, str | None]] = Counter()

    def judge(self, tick: Tick) -> Decided:
        armed = self._armed.get(tick.schedule)
        if armed is None or armed.revision != tick.revision:
            return Decided(Decision.STALE)
        if tick.at <= self.until.get(tick.schedule, armed.decided_until):
            return Decided(Decision.KNOWN)
        # A later tick that is made would leave the one that has to wait behind for ever.
        stopped = self._stopped.get(tick.schedule)
        decided = Decided(stopped) if stopped is not None else self._make(tick)
        if decided.decision is Decision.MADE:
            self.until[tick.schedule] = tick.at
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
        self._take(job)
        return Decided(Decision.MADE, tick.verdict, job.id)

    def _holder(self, job: NewJob) -> str | None:
        if job.unique is None:
            return None
        return self._taken.get((job.queue, job.unique.key)) or self._stored_holder(job)

    def _has_room(self, job: NewJob) -> bool:
        if self._is_full(job.queue, None, self._more[job.queue, None] + 1):
            return False
        return job.group is None or not self._is_full(job.queue, job.group, self._more[job.queue, job.group] + 1)

    def _take(self, job: NewJob) -> None:
        self.jobs.append(job)
        # Those of the whole queue are counted without a group.
        self._more.update({(job.queue, None), (job.queue, job.group)})
        if job.unique is not None:
            self._taken[job.queue, job.unique.key] = job.id
