"""Get, find, change and prune jobs of all stores."""

from __future__ import annotations

from collections.abc import Sequence

from jobyard.domain.job import Job
from jobyard.ports.admin_store import Action, Changed, Filter, Page
from jobyard.stores.sharded.pages import decode, encode, merge
from jobyard.stores.sharded.shards import Shard, Shards, on_each


class ShardedJobs:
    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    async def get(self, job_id: str) -> Job | None:
        return (await self._shards.find_job(job_id))[1]

    async def find(self, where: Filter, limit: int = 50, cursor: str | None = None) -> Page:
        if where.queue is not None:
            return await self._shards.of_queue(where.queue).store.find(where, limit, cursor)
        positions = decode(cursor, self._shards.by_label)
        shards = [shard for shard in self._shards.all if shard.label in positions]

        async def page(shard: Shard) -> Page:
            found = await shard.store.find(where, limit, positions[shard.label].start)
            return Page(tuple(job for job in found.jobs if shard.shows(job)), found.cursor)

        pages = await on_each(shards, page)
        by_label = {shard.label: page for shard, page in zip(shards, pages, strict=True)}
        jobs, left = merge(by_label, positions, limit)
        return Page(jobs, encode(left) if left else None)

    async def change(self, action: Action, job_ids: Sequence[str], *, reason: str = "", priority: int = 0) -> Changed:
        answers = await self._shards.on_all(
            lambda shard: shard.store.change(action, job_ids, reason=reason, priority=priority)
        )
        changed = {job_id for answer in answers for job_id in answer.changed}
        unchanged = {job_id for answer in answers for job_id in answer.unchanged} - changed
        return Changed(
            tuple(job_id for job_id in dict.fromkeys(job_ids) if job_id in changed),
            tuple(job_id for job_id in dict.fromkeys(job_ids) if job_id in unchanged),
        )

    async def prune(self, limit: int = 1000) -> int:
        removed = 0
        for shard in self._shards.all:
            if removed < limit:
                removed += await shard.store.prune(limit - removed)
        return removed
