"""The spread, put together: some queues have stores of their own, everything else is in the default store."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import msgspec

from jobyard.errors import StoreError
from jobyard.ports.record_store import LogEntry, Record
from jobyard.ports.store import Finding, Level, Migration, Store
from jobyard.stores.sharded.hot_path import HotPathVerbs
from jobyard.stores.sharded.parts import Part, each
from jobyard.stores.sharded.people import PeopleVerbs
from jobyard.stores.sharded.timekeeping import TimekeepingVerbs


class SpreadStore(HotPathVerbs, PeopleVerbs, TimekeepingVerbs):
    """Every promise of the port holds within each store; across stores these are weaker:

    - an insert, a change or an exchange that is about several stores is one atomic step in each;
    - queues of different stores take turns by call, not by job;
    - ids are unique in each store; lists are in the order of creation by each store's own clock;
    - while a store is away, what needs it raises, and a worker of its queues pauses for the others, too.

    Records, logs and the clock are those of the default store; workers beat in all. A schedule is armed in all and
    decided in the store of its queue.
    """

    def __init__(self, default: Store, others: Mapping[str, Store]) -> None:
        super().__init__(default, others)
        stores = [part.store for part in self._parts]
        self.url = default.url
        self.has_transactions = all(store.has_transactions for store in stores)
        self.is_remote = all(store.is_remote for store in stores)
        self._own = self._parts  # to open and to close; a twin leaves alone what it only borrows

    async def open(self) -> None:
        opened: list[Store] = []
        try:
            for part in self._own:
                opened.append(part.store)
                await part.store.open()
        except BaseException:
            for store in opened:
                with contextlib.suppress(Exception):
                    await store.close()
            raise

    async def close(self) -> None:
        await self._end_late_calls()
        await each(self._own, lambda part: part.store.close())

    async def diagnose(self) -> list[Finding]:
        answers = await each(self._parts, _examined)
        return [finding for findings in answers for finding in findings] + await self._left_behind()

    async def _left_behind(self) -> list[Finding]:
        """Jobs from before their queue had a store of its own."""
        return [
            Finding(
                Level.WARN,
                f"queue {info.name}",
                f"{info.waiting + info.delayed + info.running:,} of its jobs are still in {self.url}",
                "a worker without --queue runs them; or wait for them before the queue gets a store of its own",
            )
            for info in await self._default.queues()
            if info.name in self._by_queue and info.waiting + info.delayed + info.running
        ]

    async def migrations(self) -> list[Migration]:
        answers = await each(self._parts, lambda part: part.store.migrations())
        return [
            msgspec.structs.replace(migration, name=f"{migration.name} of {part.store.url}")
            for part, migrations in zip(self._parts, answers, strict=True)
            for migration in migrations
        ]

    def for_event_loop(self) -> Store:
        twins = {id(part.store): part.store.for_event_loop() for part in self._parts}
        if all(twins[id(part.store)] is part.store for part in self._parts):
            return self
        others = {queue: twins[id(store)] for queue, store in self._others.items()}
        twin = SpreadStore(twins[id(self._default)], others)
        mine = {id(part.store) for part in self._parts}
        twin._own = tuple(part for part in twin._parts if id(part.store) not in mine)
        return twin

    # Records

    async def put(
        self, collection: str, key: str, data: bytes, *, expect: int | None = None, expire_seconds: float | None = None
    ) -> int | None:
        return await self._default.put(collection, key, data, expect=expect, expire_seconds=expire_seconds)

    async def fetch(self, collection: str, key: str) -> Record | None:
        return await self._default.fetch(collection, key)

    async def fetch_all(self, collection: str, limit: int = 1000, after: str | None = None) -> list[Record]:
        return await self._default.fetch_all(collection, limit, after)

    async def remove(self, collection: str, key: str, *, expect: int | None = None) -> bool:
        return await self._default.remove(collection, key, expect=expect)

    async def append(self, log: str, data: bytes) -> int:
        return await self._default.append(log, data)

    async def read(self, log: str, after: int = 0, limit: int = 1000) -> list[LogEntry]:
        return await self._default.read(log, after, limit)

    async def trim(self, log: str, through: int) -> int:
        return await self._default.trim(log, through)


async def _examined(part: Part) -> list[Finding]:
    try:
        findings = await part.store.diagnose()
    except StoreError as error:
        if not part.label:
            raise
        names = ", ".join(part.queues)
        findings = [Finding(Level.FAIL, "store", str(error), f"until it is back, nothing of {names} runs")]
    return [msgspec.structs.replace(finding, check=f"{finding.check} of {part.store.url}") for finding in findings]
