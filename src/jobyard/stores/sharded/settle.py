"""Settlements, each sent to the store that issued its lease."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from jobyard.domain.lease import LeaseKey
from jobyard.domain.state import Settlement
from jobyard.errors import LeaseLost
from jobyard.ports.job_store import Exchange
from jobyard.stores.sharded.shards import Shard, Shards, unlabelled

ShardExchanges = list[tuple[Shard, Exchange]]


class ShardedSettle:
    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        # Settled by one store while another failed: the worker sends all again, and these would be refused.
        self._settled: set[LeaseKey] = set()

    async def settle(self, settlement: Settlement, transaction: Any) -> None:
        shard = self._shards.of_key(settlement.key)
        if shard is None:
            raise LeaseLost(
                f"Cannot settle job {settlement.key.job_id}: its lease is of a store that is not configured here."
            )
        await shard.store.settle(Settlement(unlabelled(settlement.key), settlement.transition), transaction)

    def by_shard(self, settlements: Sequence[Settlement]) -> tuple[dict[Shard, list[Settlement]], list[LeaseKey]]:
        """Settlements by the shard of their lease, and the keys of leases of unknown stores."""
        found: dict[Shard, list[Settlement]] = {}
        unknown: list[LeaseKey] = []
        for settlement in settlements:
            shard = self._shards.of_key(settlement.key)
            if shard is None:
                unknown.append(settlement.key)
            elif settlement.key in self._settled:
                self._settled.discard(settlement.key)
            else:
                found.setdefault(shard, []).append(Settlement(unlabelled(settlement.key), settlement.transition))
        return found, unknown

    async def settle_all(
        self, worker: str, by_shard: dict[Shard, list[Settlement]], lease_seconds: float
    ) -> ShardExchanges:
        shards = list(by_shard)
        answers = await asyncio.gather(
            *(shard.store.exchange(worker, by_shard[shard], shard.queues, 0, lease_seconds) for shard in shards),
            return_exceptions=True,
        )
        done = [(shard, answer) for shard, answer in zip(shards, answers, strict=True) if isinstance(answer, Exchange)]
        for answer in answers:
            if isinstance(answer, BaseException):
                for shard, exchanged in done:
                    keys = {settlement.key for settlement in by_shard[shard]} - set(exchanged.refused)
                    self._settled.update(shard.keys(keys))
                raise answer
        return done
