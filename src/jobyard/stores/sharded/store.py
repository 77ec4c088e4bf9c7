"""Sharded store: composition of its parts, and lifecycle."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from jobyard.ports.store import Finding, Migration, Store
from jobyard.stores._shared.composed_store import ComposedStore
from jobyard.stores.sharded import diagnostics
from jobyard.stores.sharded.claim import ShardedClaim
from jobyard.stores.sharded.histories import ShardedHistories
from jobyard.stores.sharded.insert import ShardedInsert
from jobyard.stores.sharded.jobs import ShardedJobs
from jobyard.stores.sharded.leases import ShardedLeases
from jobyard.stores.sharded.notifier import ShardedNotifier
from jobyard.stores.sharded.queues import ShardedQueues
from jobyard.stores.sharded.schedules import ShardedSchedules
from jobyard.stores.sharded.settle import ShardedSettle
from jobyard.stores.sharded.shards import Shards, on_each
from jobyard.stores.sharded.timeouts import ShardTimeouts


class ShardedStore(ComposedStore):
    """Queues named in `others` have stores of their own; all other queues are in the default store.

    The contract of the port holds within each store. Across stores these promises are weaker:

    - an insert, change or exchange that concerns several stores is one atomic step in each;
    - queues of different stores take turns by call, not by job;
    - ids are unique per store; lists are ordered by creation time, by the clock of each store;
    - while a store is unavailable, verbs that need it raise, and a worker of its queues pauses for the others, too.

    Records, logs and the clock are those of the default store; workers beat in all stores. A schedule is armed in all
    stores and decided in the store of its queue.
    """

    def __init__(self, default: Store, others: Mapping[str, Store]) -> None:
        self._others = dict(others)
        self._shards = shards = Shards(default, others)
        self._timeouts = ShardTimeouts()
        self._owned = shards.all  # the shards that this store opens and closes
        self.url = default.url
        self.has_transactions = all(shard.store.has_transactions for shard in shards.all)
        self.is_remote = all(shard.store.is_remote for shard in shards.all)
        settles = ShardedSettle(shards)
        notifier = ShardedNotifier(shards)
        schedules = ShardedSchedules(shards, self._timeouts)
        super().__init__(
            ShardedLeases(shards),
            notifier,
            ShardedJobs(shards),
            ShardedQueues(shards),
            schedules,
            records=default,
            histories=ShardedHistories(shards),
        )
        self.insert = ShardedInsert(shards).insert
        self.exchange = ShardedClaim(shards, settles, notifier).exchange
        self.settle = settles.settle

    async def open(self) -> None:
        opened: list[Store] = []
        try:
            for shard in self._owned:
                opened.append(shard.store)
                await shard.store.open()
        except BaseException:
            for store in opened:
                with contextlib.suppress(Exception):
                    await store.close()
            raise

    async def close(self) -> None:
        await self._timeouts.cancel_late_calls()
        await on_each(self._owned, lambda shard: shard.store.close())

    async def diagnose(self) -> list[Finding]:
        return await diagnostics.findings(self._shards)

    async def risks(self) -> list[Finding]:
        return await diagnostics.risks(self._shards)

    async def migrations(self) -> list[Migration]:
        return await diagnostics.migrations(self._shards)

    async def audit(self) -> list[str]:
        return await diagnostics.labelled(self._shards, lambda store: store.audit())

    async def repair(self) -> list[str]:
        return await diagnostics.labelled(self._shards, lambda store: store.repair())

    def shards(self) -> Sequence[Store]:
        return [shard.store for shard in self._shards.all]

    def for_event_loop(self) -> Store:
        own = [shard.store for shard in self._shards.all]
        handles = {id(store): store.for_event_loop() for store in own}
        if all(handles[id(store)] is store for store in own):
            return self
        others = {queue: handles[id(store)] for queue, store in self._others.items()}
        handle = ShardedStore(handles[id(self._shards.default.store)], others)
        # Stores that both use stay open when the handle is closed.
        shared = {id(store) for store in own}
        handle._owned = tuple(shard for shard in handle._shards.all if id(shard.store) not in shared)
        return handle
