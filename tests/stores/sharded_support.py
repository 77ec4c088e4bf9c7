"""A sharded store over two watched stores, for the tests of queues with stores of their own."""

from __future__ import annotations

from pathlib import Path

from tests.support import Watched

from jobyard.ports.store import Store
from jobyard.stores.memory import MemoryStore
from jobyard.stores.sharded import ShardedStore
from jobyard.stores.sqlite import SqliteStore
from jobyard.testing.clock import ManualClock


class ShardedSetup:
    """Queue mail has a store of its own; all other queues are in the main one."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.main = Watched(SqliteStore(folder / "jobs.db", clock=self.clock))
        self.mail = Watched(MemoryStore(self.clock))
        self.store: Store = ShardedStore(self.main.as_store(), {"mail": self.mail.as_store()})

    async def claim(self, wanted: int = 10, *queues: str) -> list[str]:
        response = await self.store.exchange("w", [], queues, wanted, 15)
        return [lease.queue for lease in response.leases]

    async def __aenter__(self) -> ShardedSetup:
        await self.store.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.main.failing = self.mail.failing = None
        assert await self.store.audit() == []
        await self.store.close()
