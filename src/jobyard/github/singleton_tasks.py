"""Leased singleton tasks, such as the full comparison with GitHub: one replica does each. There is no leader."""

from __future__ import annotations

import msgspec

from jobyard.domain.instant import Instant, after
from jobyard.github.records import Collection
from jobyard.ports.clock import Clock
from jobyard.ports.record_store import RecordStore

STARTS = "jobyard.runners.duties"
HOLDERS = "jobyard.runners.duty_holders"


class TaskStart(msgspec.Struct, frozen=True):
    """When a replica last started a task."""

    holder: str
    began_at: Instant

    def is_recent(self, now: Instant, seconds: float) -> bool:
        """A time in the future is that of a clock which was set back since."""
        return 0 <= now - self.began_at < seconds * 1000


class TaskHolder(msgspec.Struct, frozen=True):
    """The replica that holds a task, until its lease expires."""

    name: str
    until: Instant


class SingletonTasks:
    def __init__(self, records: RecordStore, clock: Clock, name: str) -> None:
        self._begun = Collection(records, STARTS, TaskStart)
        self._holders = Collection(records, HOLDERS, TaskHolder)
        self._clock = clock
        self._name = name
        self._seen: dict[str, TaskStart] = {}  # as the store last showed them: until one is due, it is not asked again

    async def take_turn(self, task: str, seconds: float) -> bool:
        """Whether no replica started the task within these seconds; if so, it counts as started now."""
        now = self._clock.now()
        if task in self._seen and self._seen[task].is_recent(now, seconds):
            return False
        mine = TaskStart(self._name, now)

        def take(known: TaskStart | None) -> TaskStart | None:
            return mine if known is None or not known.is_recent(now, seconds) else None

        found = await self._begun.update(task, take)
        if found is not None:
            self._seen[task] = found
        return found == mine

    async def hold(self, task: str, seconds: float) -> bool:
        """Acquire or renew the lease of a task; False while another replica holds it."""
        now = self._clock.now()
        mine = TaskHolder(self._name, after(now, seconds))

        def take(known: TaskHolder | None) -> TaskHolder | None:
            if known is None or known.until <= now:
                return mine
            is_renewed = known.name == self._name and known.until < after(now, seconds / 2)
            return mine if is_renewed else None

        found = await self._holders.update(task, take)
        return found is not None and found.name == self._name
