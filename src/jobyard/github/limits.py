"""The limits of the queue `runners` as they are now, cached for a moment: operators change them at run time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

from jobyard.domain.admission import UNLIMITED
from jobyard.domain.instant import Instant
from jobyard.github.tickets import QUEUE
from jobyard.ports.admin_store import QueueStore
from jobyard.ports.clock import Clock

CACHE_MS = 1000
PAGE = 1000


class OrgLimits(NamedTuple):
    total: int
    org: int


class RunnerLimits:
    def __init__(self, store: QueueStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._reading = asyncio.Lock()
        self._read_at: Instant | None = None
        self._total = UNLIMITED
        self._per_org = UNLIMITED
        self._own: dict[str, int] = {}

    async def total(self) -> int:
        await self._refresh()
        return self._total

    async def of_org(self, org: str) -> int:
        await self._refresh()
        return self._own.get(org, self._per_org)

    async def read(self, org: str, *, fresh: bool = False) -> OrgLimits:
        """`fresh`: as they are now; else as they were a moment ago at most."""
        await self._refresh(max_age_ms=0 if fresh else CACHE_MS)
        return OrgLimits(self._total, self._own.get(org, self._per_org))

    async def _refresh(self, max_age_ms: int = CACHE_MS) -> None:
        # One at a time: the others wait for what it reads, and never answer from the initial values.
        async with self._reading:
            now = self._clock.now()
            if self._read_at is not None and 0 <= now - self._read_at < max_age_ms:
                return
            for queue in await self._store.queues():
                if queue.name == QUEUE:
                    self._total = _limit(queue.settings.max_running)
                    self._per_org = _limit(queue.settings.max_per_group)
            self._own = {name: limit async for name, limit in self._own_limits()}
            self._read_at = now

    async def _own_limits(self) -> AsyncIterator[tuple[str, int]]:
        after: str | None = None
        while page := await self._store.groups(QUEUE, PAGE, after):
            for group in page:
                if group.name is not None and group.limit is not None:
                    yield group.name, group.limit
            if len(page) < PAGE:
                return
            after = page[-1].name


def _limit(value: int | None) -> int:
    return UNLIMITED if value is None else value
