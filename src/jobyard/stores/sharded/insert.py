"""Insert: the jobs of each store in one atomic step, one store after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from jobyard.domain.job import NewJob
from jobyard.errors import NotPossible, StoreError
from jobyard.ports.admin_store import Action
from jobyard.ports.job_store import Inserted
from jobyard.stores.sharded.shards import Shard, Shards


class ShardedInsert:
    """When one store rejects its jobs, those that other stores inserted before are deleted unless they run already.

    Child jobs stay: their parent would be told of a deletion, and its repeated insert is not an error.
    A note on the error names the jobs that stay.
    """

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    async def insert(self, jobs: Sequence[NewJob], transaction: Any = None) -> list[Inserted]:
        by_shard: dict[Shard, list[NewJob]] = {}
        for job in jobs:
            by_shard.setdefault(self._shards.of_queue(job.queue), []).append(job)
        if transaction is not None and len(by_shard) > 1:
            raise NotPossible(
                "Cannot insert jobs of several stores in one transaction: it belongs to one database. "
                "Insert the jobs of each store separately."
            )
        answers: dict[Shard, list[Inserted]] = {}
        try:
            for shard, its_jobs in by_shard.items():
                answers[shard] = await shard.store.insert(its_jobs, transaction)
        except Exception as error:
            children = {job.id for job in jobs if job.parent is not None}
            for shard, inserted in answers.items():
                await _undo(shard, inserted, children, error)
            raise
        return [answers[self._shards.of_queue(job.queue)].pop(0) for job in jobs]


async def _undo(shard: Shard, inserted: Sequence[Inserted], children: set[str], error: Exception) -> None:
    ids = [one.id for one in inserted if one.created]
    deleted: tuple[str, ...] = ()
    with contextlib.suppress(StoreError):
        unwanted = [job_id for job_id in ids if job_id not in children]
        deleted = (await shard.store.change(Action.DELETE, unwanted)).changed
    kept = [job_id for job_id in ids if job_id not in deleted]
    if kept:
        error.add_note(f"{shard.store.url} had inserted these jobs before, and keeps them: {', '.join(kept[:10])}")
