"""Leases of running jobs, each renewed, reported and ended in the store that issued it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob
from jobyard.domain.lease import ExpiredLease, Lease, LeaseKey
from jobyard.ports.job_store import Extended, Report
from jobyard.stores.sharded.shards import Shard, Shards, on_each, unlabelled


class ShardedLeases:
    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    async def extend(
        self, worker: str, keys: Sequence[LeaseKey], lease_seconds: float, *, unacknowledged: bool = False
    ) -> Extended:
        by_shard: dict[Shard, list[LeaseKey]] = {}
        if unacknowledged or not keys:
            by_shard = {shard: [] for shard in self._shards.all}
        unknown: list[LeaseKey] = []
        for key in keys:
            shard = self._shards.of_key(key)
            (unknown if shard is None else by_shard.setdefault(shard, [])).append(key)

        async def extend(shard: Shard) -> Extended:
            own = list(map(unlabelled, by_shard[shard]))
            answer = await shard.store.extend(worker, own, lease_seconds, unacknowledged=unacknowledged)
            return Extended(lost=shard.keys(answer.lost), cancelled=shard.cancels(answer.cancelled))

        answers = await on_each(list(by_shard), extend)
        lost = {key for answer in answers for key in answer.lost} | {*unknown}
        return Extended(
            lost=tuple(key for key in keys if key in lost),
            cancelled=tuple(cancel for answer in answers for cancel in answer.cancelled),
        )

    async def report(self, reports: Sequence[Report]) -> tuple[LeaseKey, ...]:
        by_shard: dict[Shard, list[Report]] = {}
        unknown: list[LeaseKey] = []
        for report in reports:
            shard = self._shards.of_key(report.key)
            if shard is None:
                unknown.append(report.key)
            else:
                by_shard.setdefault(shard, []).append(msgspec.structs.replace(report, key=unlabelled(report.key)))
        shards = list(by_shard)
        answers = await on_each(shards, lambda shard: shard.store.report(by_shard[shard])) if shards else []
        refused = (key for shard, answer in zip(shards, answers, strict=True) for key in shard.keys(answer))
        return (*refused, *unknown)

    async def reclaim(
        self, limit: int = 1000, *, as_of: Instant | None = None, longest_seconds: float | None = None
    ) -> list[ExpiredLease]:
        # An unavailable store must not stop the others; its error is raised when nothing else was found.
        found: list[ExpiredLease] = []
        failure: Exception | None = None
        for shard in self._shards.all:
            if len(found) < limit:
                try:
                    judged_at = await self._by_clock_of(shard, as_of)
                    rest = limit - len(found)
                    ended = await shard.store.reclaim(rest, as_of=judged_at, longest_seconds=longest_seconds)
                    found += map(shard.ended, ended)
                except Exception as error:
                    failure = error
        if failure is not None and not found:
            raise failure
        return found

    async def _by_clock_of(self, shard: Shard, instant: Instant | None) -> Instant | None:
        """An instant of the default store's clock, by the clock of another store."""
        if instant is None or shard is self._shards.default:
            return instant
        return instant + await shard.store.now() - await self._shards.default.store.now()

    async def adopt(self, job: NewJob, worker: str, external_id: str, token: str | None = None) -> Lease:
        shard = self._shards.of_queue(job.queue)
        return shard.lease(await shard.store.adopt(job, worker, external_id, token))

    async def signal(self, job_id: str, name: str, data: bytes = b"null", *, signal_id: str | None = None) -> bool:
        shard = await self._shards.of_job(job_id)
        return await shard.store.signal(job_id, name, data, signal_id=signal_id)
