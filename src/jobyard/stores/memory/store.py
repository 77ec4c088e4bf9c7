"""Memory store: composition of its parts, and lifecycle."""

from __future__ import annotations

from jobyard.ports.clock import Clock
from jobyard.ports.store import Finding, Level, Migration, Store
from jobyard.stores._shared.bound_verbs import ScheduleAndRecordVerbs
from jobyard.stores.memory.audit import disagreements
from jobyard.stores.memory.claim import MemoryClaim
from jobyard.stores.memory.connection import MemoryConnection
from jobyard.stores.memory.insert import MemoryInsert
from jobyard.stores.memory.jobs import MemoryJobs
from jobyard.stores.memory.leases import MemoryLeases
from jobyard.stores.memory.notifier import MemoryNotifier
from jobyard.stores.memory.queues import MemoryQueues
from jobyard.stores.memory.records import MemoryRecords
from jobyard.stores.memory.schedules import MemorySchedules
from jobyard.stores.memory.settle import MemorySettle


class MemoryStore(ScheduleAndRecordVerbs):
    """A store for tests and examples: it implements the whole port, and its data ends with the process.

    Each verb of the port is bound to the part that implements it.
    """

    has_transactions = False
    is_remote = False

    def __init__(self, clock: Clock, url: str = "memory://") -> None:
        self.url = url
        self._connection = connection = MemoryConnection(clock)

        notifier = MemoryNotifier(connection)
        self.wait_for_work = notifier.wait_for_work
        self.wait_for_end = notifier.wait_for_end

        self.insert = MemoryInsert(connection).insert
        self.exchange = MemoryClaim(connection, notifier).exchange
        self.settle = MemorySettle().settle

        leases = MemoryLeases(connection)
        self.extend = leases.extend
        self.report = leases.report
        self.reclaim = leases.reclaim
        self.adopt = leases.adopt
        self.signal = leases.signal

        jobs = MemoryJobs(connection)
        self.get = jobs.get
        self.find = jobs.find
        self.change = jobs.change
        self.prune = jobs.prune

        schedules = MemorySchedules(connection)
        super().__init__(schedules, MemoryRecords(connection))

        queues = MemoryQueues(connection, schedules)
        self.configure = queues.configure
        self.set_paused = queues.set_paused
        self.set_limit = queues.set_limit
        self.queues = queues.queues
        self.groups = queues.groups
        self.ages = queues.ages
        self.standing = queues.standing

    async def open(self) -> None:
        """Do nothing: there is nothing to connect to."""

    async def close(self) -> None:
        """Do nothing: the data lives as long as the object."""

    async def diagnose(self) -> list[Finding]:
        return [Finding(Level.WARN, "memory", "data is lost when the process ends", "use this store in tests only")]

    async def migrations(self) -> list[Migration]:
        return []

    async def audit(self) -> list[str]:
        with self._connection.locked() as now:
            return disagreements(self._connection.jobs, now)

    def for_event_loop(self) -> Store:
        return self
