"""The stores of a sharded store, and which of them holds a queue, a job or a lease."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from jobyard.domain.job import Job
from jobyard.domain.lease import ExpiredLease, Lease, LeaseKey
from jobyard.ports.store import Store

T = TypeVar("T")
SEPARATOR = ":"


class Shard:
    """One store. Its label is part of the tokens that it issued, so that any process finds the store of a lease."""

    def __init__(self, store: Store, label: str, queues: tuple[str, ...]) -> None:
        self.store = store
        self.label = label  # empty: the default store
        self.queues = queues  # empty: all queues without a store of their own

    def shows(self, job: Job) -> bool:
        """The default store also shows jobs inserted before their queue had a store of its own."""
        return not self.queues or job.queue in self.queues

    def labelled(self, token: str) -> str:
        return f"{self.label}{SEPARATOR}{token}" if self.label else token

    def lease(self, lease: Lease) -> Lease:
        return msgspec.structs.replace(lease, token=self.labelled(lease.token)) if self.label else lease

    def key(self, key: LeaseKey) -> LeaseKey:
        return LeaseKey(key.job_id, key.sequence, self.labelled(key.token)) if self.label else key

    def ended(self, ended: ExpiredLease) -> ExpiredLease:
        return msgspec.structs.replace(ended, token=self.labelled(ended.token)) if self.label else ended

    def keys(self, keys: Iterable[LeaseKey]) -> tuple[LeaseKey, ...]:
        return tuple(map(self.key, keys))

    def cancels(self, cancelled: Iterable[tuple[LeaseKey, str]]) -> tuple[tuple[LeaseKey, str], ...]:
        return tuple((self.key(key), reason) for key, reason in cancelled)


def unlabelled(key: LeaseKey) -> LeaseKey:
    """The key as its own store knows it.

    >>> unlabelled(LeaseKey("job", 7, "0a1b2c3d:token")).token
    'token'
    """
    return LeaseKey(key.job_id, key.sequence, key.token.rpartition(SEPARATOR)[2])


class Shards:
    """All shards, the default one first; a store given for several queues is one shard."""

    def __init__(self, default: Store, others: Mapping[str, Store]) -> None:
        self.all = _make_shards(default, others)
        self.default = self.all[0]
        self.by_label = {shard.label: shard for shard in self.all}
        self.by_queue = {queue: shard for shard in self.all for queue in shard.queues}

    def of_queue(self, queue: str) -> Shard:
        return self.by_queue.get(queue, self.default)

    def of_key(self, key: LeaseKey) -> Shard | None:
        label, separator, _ = key.token.rpartition(SEPARATOR)
        return self.by_label.get(label) if label or not separator else None

    async def of_job(self, job_id: str) -> Shard:
        """The default shard for a job that does not exist, so that its store raises JobNotFound."""
        return (await self.find_job(job_id))[0]

    async def find_job(self, job_id: str) -> tuple[Shard, Job | None]:
        jobs = await self.on_all(lambda shard: shard.store.get(job_id))
        found = ((shard, job) for shard, job in zip(self.all, jobs, strict=True) if job and shard.shows(job))
        return next(found, (self.default, None))

    def of_queues(self, queues: Sequence[str]) -> dict[Shard, tuple[str, ...]]:
        """The shards of these queues, each with its own; no queues means all."""
        if not queues:
            return {shard: shard.queues for shard in self.all}
        found: dict[Shard, tuple[str, ...]] = {}
        for queue in queues:
            shard = self.of_queue(queue)
            found[shard] = (*found.get(shard, ()), queue)
        return found

    async def on_all(self, verb: Callable[[Shard], Awaitable[T]]) -> list[T]:
        return await on_each(self.all, verb)


def _make_shards(default: Store, others: Mapping[str, Store]) -> tuple[Shard, ...]:
    shards = [Shard(default, "", ())]
    labels = {""}
    for store in {id(store): store for store in others.values()}.values():
        if store is default:
            continue
        label = f"{zlib.crc32(store.url.encode()):08x}"
        while label in labels:
            label += "x"  # two stores may have the same URL: memory://
        labels.add(label)
        shards.append(Shard(store, label, tuple(queue for queue, its in others.items() if its is store)))
    return tuple(shards)


async def on_each(shards: Sequence[Shard], verb: Callable[[Shard], Awaitable[T]]) -> list[T]:
    """Run the verb on all shards concurrently; when one fails, the others finish before the error is raised."""
    if len(shards) == 1:
        return [await verb(shards[0])]
    answers = await asyncio.gather(*(verb(shard) for shard in shards), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if not isinstance(answer, BaseException)]
