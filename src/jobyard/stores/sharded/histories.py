"""Histories, each in the store of its job; ends of jobs from all stores."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from itertools import chain, zip_longest

import msgspec

from jobyard.domain.history import Delivery, EndedJob, HistoryEntry
from jobyard.ports.admin_store import Filter
from jobyard.ports.workflow_store import Checkpoint
from jobyard.stores.sharded.shards import Shard, Shards, on_each, unlabelled


class ShardedHistories:
    """A child job and its parent may be in different stores.

    Its end is written in the store of the child and delivered to that of the parent. While a store is unavailable,
    `deliver` raises if it has, or may have, one of the parents; deliveries to the other stores are made nevertheless.
    """

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[tuple[HistoryEntry, ...] | None]:
        by_shard: dict[Shard, list[Checkpoint]] = {}
        owners = [self._shards.of_key(each.key) for each in checkpoints]
        for shard, each in zip(owners, checkpoints, strict=True):
            if shard is not None:
                by_shard.setdefault(shard, []).append(msgspec.structs.replace(each, key=unlabelled(each.key)))
        shards = list(by_shard)
        found = await on_each(shards, lambda shard: shard.store.checkpoint(by_shard[shard])) if shards else []
        answers = dict(zip(shards, map(iter, found), strict=True))
        return [None if shard is None else next(answers[shard]) for shard in owners]

    async def history(self, job_id: str, scope: str = "", *, after: int = 0, limit: int = 1000) -> list[HistoryEntry]:
        shard = await self._shards.of_job(job_id)
        return await shard.store.history(job_id, scope, after=after, limit=limit)

    async def histories(self, wanted: Sequence[tuple[str, str]], limit: int = 1000) -> list[list[HistoryEntry]]:
        ids = list(dict.fromkeys(job_id for job_id, _ in wanted))
        owners = dict(zip(ids, await asyncio.gather(*map(self._shards.of_job, ids)), strict=True))
        by_shard: dict[Shard, list[tuple[str, str]]] = {}
        for each in wanted:
            by_shard.setdefault(owners[each[0]], []).append(each)
        found = await on_each(list(by_shard), lambda shard: shard.store.histories(by_shard[shard], limit))
        pages = dict(zip(by_shard, map(iter, found), strict=True))
        return [next(pages[owners[job_id]]) for job_id, _ in wanted]

    async def deliver(self, deliveries: Sequence[Delivery], ended: Sequence[str] = ()) -> None:
        await self._deliver(deliveries)
        if ended:
            await self.forget_ended(ended)

    async def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        if not deliveries:
            return
        ids = tuple(dict.fromkeys(each.job_id for each in deliveries))
        known = await asyncio.gather(*(_known_jobs(each, ids) for each in self._shards.all), return_exceptions=True)
        owners: dict[str, Shard] = {}
        failure: BaseException | None = None
        for shard, jobs in zip(self._shards.all, known, strict=True):
            if isinstance(jobs, BaseException):
                failure = jobs
            else:
                owners = dict.fromkeys(jobs, shard) | owners
        by_shard: dict[Shard, list[Delivery]] = {}
        for each in deliveries:
            if each.job_id in owners:
                by_shard.setdefault(owners[each.job_id], []).append(each)
        if by_shard:
            await on_each(list(by_shard), lambda shard: shard.store.deliver(by_shard[shard]))
        if failure is not None and len(owners) < len(ids):
            raise failure

    async def ended_jobs(self, limit: int = 1000) -> list[EndedJob]:
        # An unavailable store must not stop the others; its error is raised when nothing else was found.
        answers = await asyncio.gather(
            *(shard.store.ended_jobs(limit) for shard in self._shards.all), return_exceptions=True
        )
        found = [answer for answer in answers if not isinstance(answer, BaseException)]
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
        if failures and not any(found):
            raise failures[0]
        # In turn, because a store with many ends must not delay those of the others.
        in_turn = chain.from_iterable(zip_longest(*found))
        return [ended for ended in in_turn if ended is not None][:limit]

    async def forget_ended(self, job_ids: Sequence[str]) -> None:
        await self._shards.on_all(lambda shard: shard.store.forget_ended(job_ids))


async def _known_jobs(shard: Shard, ids: Collection[str]) -> set[str]:
    """Those of the jobs that the store has."""
    found: set[str] = set()
    cursor: str | None = None
    while True:
        page = await shard.store.find(Filter(ids=tuple(ids)), len(ids), cursor)
        found |= {job.id for job in page.jobs if shard.shows(job)}
        cursor = page.cursor
        if cursor is None:
            return found
