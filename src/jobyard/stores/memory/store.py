"""Memory store: composition of its parts, and lifecycle."""

from __future__ import annotations

from jobyard.ports.clock import Clock
from jobyard.ports.store import Finding, Level, Migration, Store
from jobyard.stores._shared.composed_store import ComposedStore
from jobyard.stores.memory.audit import disagreements
from jobyard.stores.memory.claim import MemoryClaim
from jobyard.stores.memory.connection import MemoryConnection
from jobyard.stores.memory.histories import MemoryHistories
from jobyard.stores.memory.insert import MemoryInsert
from jobyard.stores.memory.jobs import MemoryJobs
from jobyard.stores.memory.leases import MemoryLeases
from jobyard.stores.memory.notifier import MemoryNotifier
from jobyard.stores.memory.queues import MemoryQueues
from jobyard.stores.memory.records import MemoryRecords
from jobyard.stores.memory.schedules import MemorySchedules
from jobyard.stores.memory.settle import MemorySettle


class MemoryStore(ComposedStore):
    """A store for tests and examples: it implements the whole port, and its data ends with the process."""

    has_transactions = False
    is_remote = False

    def __init__(self, clock: Clock, url: str = "memory://") -> None:
        self.url = url
        self._connection = connection = MemoryConnection(clock)
        notifier = MemoryNotifier(connection)
        schedules = MemorySchedules(connection)
        super().__init__(
            MemoryLeases(connection),
            notifier,
            MemoryJobs(connection),
            MemoryQueues(connection, schedules),
            schedules,
            MemoryRecords(connection),
            MemoryHistories(connection),
        )
        self.insert = MemoryInsert(connection).insert
        self.exchange = MemoryClaim(connection, notifier).exchange
        self.settle = MemorySettle().settle

    async def open(self) -> None:
        """Nothing to connect to."""
        self._connection.process.opened()

    async def close(self) -> None:
        """The data lives as long as the object."""
        self._connection.process.closed()

    async def diagnose(self) -> list[Finding]:
        return [Finding(Level.WARN, "memory", "data is lost when the process ends", "use this store in tests only")]

    async def risks(self) -> list[Finding]:
        return []

    async def migrations(self) -> list[Migration]:
        return []

    async def audit(self) -> list[str]:
        with self._connection.locked() as now:
            return disagreements(self._connection.jobs, now)

    async def repair(self) -> list[str]:
        return []  # nothing outlives the process that could have damaged it

    def for_event_loop(self) -> Store:
        return self
