"""The queues that a worker claims from: the named ones, or all except those that need a worker of their own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from jobyard.errors import StoreError
from jobyard.ports.admin_store import QueueStore

# How soon a new queue is noticed by a worker that takes all queues except some.
REFRESH_SECONDS = 1.0
# No names would mean all queues, so a store without other queues needs one.
PLACEHOLDER = "default"


class QueueSelection:
    def __init__(self, store: QueueStore, named: Sequence[str], excluded: Sequence[str]) -> None:
        self._store = store
        self._excluded = frozenset(excluded) if not named else frozenset()
        self.names: Sequence[str] = named if not self._excluded else (PLACEHOLDER,)

    @property
    def changes(self) -> bool:
        return bool(self._excluded)

    async def refresh(self) -> None:
        found = [queue.name for queue in await self._store.queues() if queue.name not in self._excluded]
        self.names = found or (PLACEHOLDER,)

    async def keep_fresh(self) -> None:
        while True:
            with contextlib.suppress(StoreError):  # the claims notice it too, and report it
                await self.refresh()
            await asyncio.sleep(REFRESH_SECONDS)
