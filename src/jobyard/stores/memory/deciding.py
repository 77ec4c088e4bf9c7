"""The ticks of one call, judged in order before anything is changed: the call happens wholly or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob
from jobyard.ports.store import Armed, Decided, Decision, Tick, Verdict
from jobyard.stores.memory.entrance import lacks_room
from jobyard.stores.memory.shelf import Shelf


class Deciding:
    """Remembers what the earlier ticks of the call will have changed."""

    def __init__(self, shelf: Shelf, armed: Mapping[str, Armed], now: Instant) -> None:
        self.jobs: list[NewJob] = []  # to be inserted
        self._shelf = shelf
        self._armed = armed
        self._now = now
        self._until: dict[str, Instant] = {}
        self._stopped: dict[str, Decision] = {}
        self._taken: dict[tuple[str, str], str] = {}
        self._more: Counter[tuple[str, str | None]] = Counter()

    def judge(self, tick: Tick) -> Decided:
        armed = self._armed.get(tick.schedule)
        if armed is None or armed.revision != tick.revision:
            return Decided(Decision.STALE)
        if tick.at <= self._until.get(tick.schedule, armed.decided_until):
            return Decided(Decision.KNOWN)
        # A later tick that is made would leave the one that has to wait behind for ever.
        stopped = self._stopped.get(tick.schedule)
        decided = Decided(stopped) if stopped is not None else self._make(tick)
        if decided.decision is Decision.MADE:
            self._until[tick.schedule] = tick.at
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
        holder = self._shelf.keys.holder(job, self._now)
        if holder is None and job.unique is not None:
            holder = self._taken.get((job.queue, job.unique.key))
        return holder

    def _has_room(self, job: NewJob) -> bool:
        if lacks_room(self._shelf, job.queue, self._more[job.queue, None] + 1):
            return False
        return job.group is None or not lacks_room(
            self._shelf, job.queue, self._more[job.queue, job.group] + 1, job.group
        )

    def _take(self, job: NewJob) -> None:
        self.jobs.append(job)
        # Those of the whole queue are counted without a group.
        self._more.update({(job.queue, None), (job.queue, job.group)})
        if job.unique is not None:
            self._taken[job.queue, job.unique.key] = job.id
