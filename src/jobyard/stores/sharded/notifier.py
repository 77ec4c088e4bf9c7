"""Waiting for work in several stores, and for the end of a job."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from jobyard.domain.job import Job
from jobyard.stores.sharded.shards import Shard, Shards

# A waiting exchange polls after this time even if no store reported work.
WAIT_SECONDS = 30.0


class ShardedNotifier:
    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    async def wait_for_work(self, queues: Sequence[str], timeout_seconds: float) -> bool:
        return await self._wait_for_any(self._shards.of_queues(queues), timeout_seconds)

    async def wait_for_end(self, job_id: str, timeout_seconds: float) -> Job | None:
        shard = await self._shards.of_job(job_id)
        return await shard.store.wait_for_end(job_id, timeout_seconds)

    async def wait_until(self, by_shard: Mapping[Shard, tuple[str, ...]], until: asyncio.Future[None]) -> None:
        """Return when any store may have work, or `until` is done."""
        waiting = asyncio.ensure_future(self._wait_for_any(by_shard, WAIT_SECONDS))
        either: list[asyncio.Future[Any]] = [waiting, until]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting
        else:
            waiting.result()

    async def _wait_for_any(self, by_shard: Mapping[Shard, tuple[str, ...]], timeout_seconds: float) -> bool:
        tasks = [
            asyncio.ensure_future(shard.store.wait_for_work(queues, timeout_seconds))
            for shard, queues in by_shard.items()
        ]
        try:
            for earliest in asyncio.as_completed(tasks):
                if await earliest:
                    return True
            return False
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
