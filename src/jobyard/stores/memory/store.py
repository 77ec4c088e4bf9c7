"""The memory store, put together from its verbs."""

from __future__ import annotations

from jobyard.ports.clock import Clock
from jobyard.ports.store import Finding, Level, Migration, Store
from jobyard.stores.memory.people import PeopleVerbs
from jobyard.stores.memory.records import RecordVerbs
from jobyard.stores.memory.waiting import WaitingVerbs


class MemoryStore(WaitingVerbs, PeopleVerbs, RecordVerbs):
    """Everything is lost with the process; otherwise it keeps every promise of the port."""

    has_transactions = False
    is_remote = False

    def __init__(self, clock: Clock, url: str = "memory://") -> None:
        super().__init__(clock)
        self.url = url

    async def open(self) -> None:
        """There is nothing to connect to."""

    async def close(self) -> None:
        """There is nothing to let go of; what is stored lives as long as the object."""

    async def diagnose(self) -> list[Finding]:
        return [Finding(Level.WARN, "memory", "nothing is kept when the process ends", "use it in tests only")]

    async def migrations(self) -> list[Migration]:
        return []

    def for_event_loop(self) -> Store:
        return self
