"""Schedules, armed in every store and decided in that of their queue; worker heartbeats go to every store."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from jobyard.domain.instant import Instant
from jobyard.ports.schedule_store import ArmedSchedule, Decided, Decision, Tick, TickInfo, WorkerInfo
from jobyard.ports.store import Store
from jobyard.stores.sharded.shards import Shard, Shards, on_each
from jobyard.stores.sharded.timeouts import ShardTimeouts

T = TypeVar("T")


class ShardedSchedules:
    """`arm` and `disarm` raise while any store is unavailable: the others would not know what that one decided.

    `armed` and `ticks` leave out an unavailable store, except the default one.
    """

    def __init__(self, shards: Shards, timeouts: ShardTimeouts) -> None:
        self._shards = shards
        self._timeouts = timeouts
        self.now = shards.default.store.now

    async def arm(self, schedule: str, revision: int, since: Instant | None = None) -> bool:
        # A schedule that moves to the store of another queue continues there after its last tick.
        if since is None:
            since = await self._last_tick(schedule)
        if not await self._arm_all(schedule, revision, since):
            return False
        # The previous revision decides nothing any more; ticks that it decided meanwhile must be known in all stores.
        last = await self._last_tick(schedule)
        if last is None or (since is not None and last <= since):
            return True
        return await self._arm_all(schedule, revision, last)

    async def _arm_all(self, schedule: str, revision: int, since: Instant | None) -> bool:
        return all(await self._shards.on_all(lambda shard: shard.store.arm(schedule, revision, since)))

    async def _last_tick(self, schedule: str) -> Instant | None:
        newest = await self._shards.on_all(lambda shard: shard.store.ticks(schedule, 1))
        return max((tick.at for ticks in newest for tick in ticks), default=None)

    async def disarm(self, schedule: str, revision: int | None = None) -> bool:
        return any(await self._shards.on_all(lambda shard: shard.store.disarm(schedule, revision)))

    async def armed(self, limit: int = 1000, after: str | None = None) -> list[ArmedSchedule]:
        # The latest instant and the lowest revision of all stores; 0 when a store is not armed yet.
        answers = await self._from_available(lambda store: store.armed(limit, after))
        found: dict[str, list[ArmedSchedule]] = {}
        for one in (one for armed in answers for one in armed):
            found.setdefault(one.schedule, []).append(one)
        return [
            ArmedSchedule(
                name,
                min(one.revision for one in found[name]) if len(found[name]) == len(answers) else 0,
                max(one.decided_until for one in found[name]),
            )
            for name in sorted(found)[:limit]
        ]

    async def decide(self, ticks: Sequence[Tick]) -> list[Decided]:
        by_shard: dict[Shard, list[Tick]] = {}
        for tick in ticks:
            by_shard.setdefault(self._shards.of_queue(tick.queue), []).append(tick)
        shards = list(by_shard)
        found = await on_each(shards, lambda shard: self._decide(shard, by_shard[shard])) if shards else []
        answers = dict(zip(shards, map(iter, found), strict=True))
        return [next(answers[self._shards.of_queue(tick.queue)]) for tick in ticks]

    async def _decide(self, shard: Shard, ticks: Sequence[Tick]) -> list[Decided]:
        answers = await self._timeouts.call(shard, lambda store: store.decide(ticks))
        return [Decided(Decision.UNAVAILABLE)] * len(ticks) if answers is None else answers

    async def ticks(self, schedule: str, limit: int = 50, before: Instant | None = None) -> list[TickInfo]:
        answers = await self._from_available(lambda store: store.ticks(schedule, limit, before))
        merged = sorted((tick for ticks in answers for tick in ticks), key=lambda tick: tick.at, reverse=True)
        return merged[:limit]

    async def _from_available(self, verb: Callable[[Store], Coroutine[Any, Any, list[T]]]) -> list[list[T]]:
        async def answer(shard: Shard) -> list[T] | None:
            return await (self._timeouts.call(shard, verb) if shard.label else verb(shard.store))

        return [some for some in await self._shards.on_all(answer) if some is not None]

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        await self._shards.on_all(lambda shard: shard.store.heartbeat(worker, seconds))

    async def workers(self) -> list[WorkerInfo]:
        # The default store's view of a worker wins over that of the others.
        answers = await self._shards.on_all(lambda shard: shard.store.workers())
        found = {worker.id: worker for workers in reversed(answers) for worker in workers}
        return [found[worker_id] for worker_id in sorted(found)]
