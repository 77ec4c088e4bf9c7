"""The end of the stream of hints, read for everybody in this process who listens."""

from __future__ import annotations

import time
from collections.abc import Callable

from jobyard.domain.instant import Instant
from jobyard.live_events.event import COLLECTION, LISTENER_SECONDS, LISTENERS, LiveEvent, keys_since, unpack
from jobyard.ports.store import Store

PAGE = 500
# Whoever writes stamps with its own idea of the store's time, and may be so much late.
OVERLAP_MILLISECONDS = 500
# Said so often that one try may fail.
ANNOUNCE_EVERY_SECONDS = LISTENER_SECONDS / 3


class LiveEventReader:
    def __init__(self, store: Store, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._name = name
        self._clock = clock
        self._said_at: float | None = None
        self._newest: Instant = 0
        self._seen: set[str] = set()  # keys within the overlap

    async def begin(self) -> None:
        """What was told before this moment is not read."""
        self._newest = await self._store.now()
        self._seen = {record.key for record in await self._store.fetch_all(COLLECTION, 10_000, self._from())}
        await self.announce()

    async def announce(self) -> None:
        if self._said_at is None or self._clock() - self._said_at >= ANNOUNCE_EVERY_SECONDS:
            await self._store.put(LISTENERS, self._name, b"{}", expire_seconds=LISTENER_SECONDS)
            self._said_at = self._clock()

    async def look(self) -> list[LiveEvent]:
        """What was told since the last look, in order of the store's time as far as it came in order."""
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
            self._move_on()
        return found

    async def end(self) -> None:
        self._said_at = None
        await self._store.remove(LISTENERS, self._name)

    def _from(self) -> str:
        return keys_since(self._newest - OVERLAP_MILLISECONDS)

    def _move_on(self) -> None:
        self._newest = max(self._newest, int(max(self._seen).partition(".")[0]))
        start = self._from()
        self._seen = {key for key in self._seen if key > start}
