"""Queues that submitters may use: those of the app and those that exist."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from jobyard.domain.job_options import DEFAULTS
from jobyard.ports.store import Store


class KnownQueues:
    """A queue that another server removes meanwhile stays known here."""

    def __init__(self, store: Store, declared: Iterable[str]) -> None:
        self._store = store
        self._names = {DEFAULTS.queue, *declared}
        self._reading = asyncio.Lock()

    async def missing(self, names: set[str]) -> set[str]:
        """Those of the names that are not queues. The store is read only if one of them is new."""
        if not names <= self._names:
            async with self._reading:
                if not names <= self._names:
                    self._names.update([info.name for info in await self._store.queues()])
        return names - self._names

    def forget(self, name: str) -> None:
        self._names.discard(name)
