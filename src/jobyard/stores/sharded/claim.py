"""Exchange over several stores: settle in all at once, then claim in one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from jobyard.domain.lease import LeaseKey
from jobyard.domain.state import Settlement
from jobyard.ports.job_store import Exchange
from jobyard.stores.sharded.notifier import ShardedNotifier
from jobyard.stores.sharded.settle import ShardedSettle, ShardExchanges
from jobyard.stores.sharded.shards import Shard, Shards


class ShardedClaim:
    def __init__(self, shards: Shards, settles: ShardedSettle, notifier: ShardedNotifier) -> None:
        self._shards = shards
        self._settles = settles
        self._notifier = notifier
        self._turn = 0

    async def exchange(
        self,
        worker: str,
        settlements: Sequence[Settlement],
        queues: Sequence[str],
        wanted: int,
        lease_seconds: float,
        until: asyncio.Future[None] | None = None,
    ) -> Exchange:
        settled, unknown = self._settles.by_shard(settlements)
        claimed = self._shards.of_queues(queues)
        if len(settled.keys() | claimed.keys()) == 1:
            [shard] = settled.keys() | claimed.keys()
            answer = await shard.store.exchange(
                worker, settled.get(shard, ()), claimed.get(shard, ()), wanted, lease_seconds, until
            )
            return _join([(shard, answer)], unknown)
        answers = await self._settles.settle_all(worker, settled, lease_seconds)
        try:
            if wanted > 0 or not answers:
                answers += await self._claim(worker, claimed, wanted, lease_seconds)
        except Exception:
            # The worker must learn what was settled; an unavailable store fails again at the next claim.
            if not answers:
                raise
        if until is None or settlements or not claimed or any(answer.leases for _, answer in answers):
            return _join(answers, unknown)
        await self._notifier.wait_until(claimed, until)
        if until.done():
            return _join(answers, unknown)
        return _join(await self._claim(worker, claimed, wanted, lease_seconds), unknown)

    async def _claim(
        self, worker: str, by_shard: Mapping[Shard, tuple[str, ...]], wanted: int, lease_seconds: float
    ) -> ShardExchanges:
        """Return what was claimed even if another store fails; its error is raised when nothing was claimed."""
        answers: ShardExchanges = []
        failure: Exception | None = None
        left = wanted
        for shard in self._in_turn(list(by_shard)):
            try:
                answer = await shard.store.exchange(worker, (), by_shard[shard], left, lease_seconds)
            except Exception as error:
                failure = error
            else:
                answers.append((shard, answer))
                left -= len(answer.leases)
            if left == 0 < wanted:
                break
        if failure is not None and left == wanted:
            raise failure
        return answers

    def _in_turn(self, shards: list[Shard]) -> list[Shard]:
        """Start with the next shard each time: with few free slots the last ones would starve."""
        if not shards:
            return []
        self._turn += 1
        start = self._turn % len(shards)
        return shards[start:] + shards[:start]


def _join(answers: ShardExchanges, unknown: Iterable[LeaseKey]) -> Exchange:
    """One answer from several; a cancel request that two stores report is returned once."""
    due = [answer.next_due_at for _, answer in answers if answer.next_due_at is not None]
    cancels = (cancel for shard, answer in answers for cancel in shard.cancels(answer.cancelled))
    return Exchange(
        refused=(*(key for shard, answer in answers for key in shard.keys(answer.refused)), *unknown),
        leases=tuple(shard.lease(lease) for shard, answer in answers for lease in answer.leases),
        cancelled=tuple(dict.fromkeys(cancels)),
        next_due_at=min(due) if due else None,
        revision=max((answer.revision for _, answer in answers), default=0),
        now=answers[0][1].now if answers else 0,
    )
