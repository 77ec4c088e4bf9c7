"""Reads the live events of all processes, once for all subscribers of this process."""

from __future__ import annotations

import time
from collections.abc import Callable

from jobyard.domain.instant import Instant
from jobyard.live_events.event import COLLECTION, LISTENER_SECONDS, LISTENERS, LiveEvent, keys_since, unpack
from jobyard.ports.store import Store

PAGE = 500
# Publishers stamp events with their own estimate of the store's time, which may lag by this much.
OVERLAP_MILLISECONDS = 500
# Often enough that one announcement may fail.
ANNOUNCE_EVERY_SECONDS = LISTENER_SECONDS / 3


class LiveEventReader:
    def __init__(self, store: Store, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._name = name
        self._clock = clock
        self._announced_at: float | None = None
        self._newest: Instant = 0
        self._seen: set[str] = set()  # keys within the overlap

    async def start(self) -> None:
        """Read from now on; earlier events are skipped."""
        self._newest = await self._store.now()
        self._seen = {record.key for record in await self._store.fetch_all(COLLECTION, 10_000, self._from())}
        await self.announce()

    async def announce(self) -> None:
        """Tell publishers that this process listens."""
        if self._announced_at is None or self._clock() - self._announced_at >= ANNOUNCE_EVERY_SECONDS:
            await self._store.put(LISTENERS, self._name, b"{}", expire_seconds=LISTENER_SECONDS)
            self._announced_at = self._clock()

    async def read(self) -> list[LiveEvent]:
        """The events since the last call, in order of the store's time as far as they arrived in order."""
        found: list[LiveEvent] = []
        after = self._from()
        while True:
            records = await self._store.fetch_all(COLLECTION, PAGE, after)
            for record in records:
                if record.key not in self._seen:
                    self._seen.add(record.key)
                    found += unpack(record.data)
            if len(records) < PAGE:
                break
            after = records[-1].key
        if found:
            self._advance()
        return found

    async def stop(self) -> None:
        self._announced_at = None
        await self._store.remove(LISTENERS, self._name)

    def _from(self) -> str:
        return keys_since(self._newest - OVERLAP_MILLISECONDS)

    def _advance(self) -> None:
        self._newest = max(self._newest, int(max(self._seen).partition(".")[0]))
        start = self._from()
        self._seen = {key for key in self._seen if key > start}
