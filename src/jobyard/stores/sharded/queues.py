"""Queues and groups, each from the store of its queue."""

from __future__ import annotations

from jobyard.domain.explain import JobPosition
from jobyard.domain.job import QueueSettings
from jobyard.ports.admin_store import GroupInfo, GroupsInLine, QueueAges, QueueInfo
from jobyard.stores.sharded.shards import Shard, Shards


class ShardedQueues:
    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    async def configure(self, queue: str, settings: QueueSettings) -> None:
        await self._shards.of_queue(queue).store.configure(queue, settings)

    async def set_paused(self, queue: str, group: str | None, paused: bool) -> None:
        await self._shards.of_queue(queue).store.set_paused(queue, group, paused)

    async def set_limit(self, queue: str, group: str, limit: int | None) -> None:
        await self._shards.of_queue(queue).store.set_limit(queue, group, limit)

    async def remove_queue(self, queue: str) -> bool:
        return await self._shards.of_queue(queue).store.remove_queue(queue)

    async def queues(self) -> list[QueueInfo]:
        # `diagnose` reports jobs that a queue left in the default store.
        async def own(shard: Shard) -> list[QueueInfo]:
            return [info for info in await shard.store.queues() if self._shards.of_queue(info.name) is shard]

        found = await self._shards.on_all(own)
        return sorted((info for infos in found for info in infos), key=lambda info: info.name)

    async def ages(self) -> list[QueueAges]:
        async def own(shard: Shard) -> list[QueueAges]:
            return [ages for ages in await shard.store.ages() if self._shards.of_queue(ages.queue) is shard]

        found = await self._shards.on_all(own)
        return sorted((ages for of_shard in found for ages in of_shard), key=lambda ages: ages.queue)

    async def groups(self, queue: str, limit: int = 1000, after: str | None = None) -> list[GroupInfo]:
        return await self._shards.of_queue(queue).store.groups(queue, limit, after)

    async def line(self, queue: str, limit: int = 100) -> GroupsInLine:
        return await self._shards.of_queue(queue).store.line(queue, limit)

    async def position(self, job_id: str) -> JobPosition:
        return await (await self._shards.of_job(job_id)).store.position(job_id)
