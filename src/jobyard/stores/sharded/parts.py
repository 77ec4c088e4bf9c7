"""The stores that a spread is made of, and which of them a queue, a job or a lease belongs to."""

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
MARK = ":"


class Part:
    """One of the stores. Its label marks the tokens it gave, so that any process knows whose they are."""

    def __init__(self, store: Store, label: str, queues: tuple[str, ...]) -> None:
        self.store = store
        self.label = label  # empty: the default store
        self.queues = queues  # empty: all that have no store of their own

    def shows(self, job: Job) -> bool:
        """The default store also shows what was left there before its queue had a store of its own."""
        return not self.queues or job.queue in self.queues

    def marked(self, token: str) -> str:
        return f"{self.label}{MARK}{token}" if self.label else token

    def lease(self, lease: Lease) -> Lease:
        return msgspec.structs.replace(lease, token=self.marked(lease.token)) if self.label else lease

    def key(self, key: LeaseKey) -> LeaseKey:
        return LeaseKey(key.job_id, key.sequence, self.marked(key.token)) if self.label else key

    def ended(self, ended: ExpiredLease) -> ExpiredLease:
        return msgspec.structs.replace(ended, token=self.marked(ended.token)) if self.label else ended

    def keys(self, keys: Iterable[LeaseKey]) -> tuple[LeaseKey, ...]:
        return tuple(map(self.key, keys))

    def wishes(self, cancelled: Iterable[tuple[LeaseKey, str]]) -> tuple[tuple[LeaseKey, str], ...]:
        return tuple((self.key(key), reason) for key, reason in cancelled)


def bare(key: LeaseKey) -> LeaseKey:
    """As the store that gave it knows it.

    >>> bare(LeaseKey("job", 7, "0a1b2c3d:token")).token
    'token'
    """
    return LeaseKey(key.job_id, key.sequence, key.token.rpartition(MARK)[2])


def make_parts(default: Store, others: Mapping[str, Store]) -> tuple[Part, ...]:
    """The default first; a store that was given for several queues is one part."""
    parts = [Part(default, "", ())]
    labels = {""}
    for store in {id(store): store for store in others.values()}.values():
        if store is default:
            continue
        label = f"{zlib.crc32(store.url.encode()):08x}"
        while label in labels:
            label += "x"  # memory:// twice is two stores
        labels.add(label)
        parts.append(Part(store, label, tuple(queue for queue, its in others.items() if its is store)))
    return tuple(parts)


class Parts:
    """What the verbs share."""

    def __init__(self, default: Store, others: Mapping[str, Store]) -> None:
        self._others = dict(others)
        self._parts = make_parts(default, others)
        self._default = default
        self._by_label = {part.label: part for part in self._parts}
        self._by_queue = {queue: part for part in self._parts for queue in part.queues}

    def _of_queue(self, queue: str) -> Part:
        return self._by_queue.get(queue, self._parts[0])

    def _of_key(self, key: LeaseKey) -> Part | None:
        label, mark, _ = key.token.rpartition(MARK)
        return self._by_label.get(label) if label or not mark else None

    async def _of_job(self, job_id: str) -> Part:
        """The default store answers for a job that is nowhere."""
        return (await self._look_up(job_id))[0]

    async def _look_up(self, job_id: str) -> tuple[Part, Job | None]:
        jobs = await each(self._parts, lambda part: part.store.get(job_id))
        found = ((part, job) for part, job in zip(self._parts, jobs, strict=True) if job and part.shows(job))
        return next(found, (self._parts[0], None))

    def _asked(self, queues: Sequence[str]) -> dict[Part, tuple[str, ...]]:
        """Who has any of these queues, and which of them; none named means all."""
        if not queues:
            return {part: part.queues for part in self._parts}
        asked: dict[Part, tuple[str, ...]] = {}
        for queue in queues:
            part = self._of_queue(queue)
            asked[part] = (*asked.get(part, ()), queue)
        return asked


async def each(parts: Sequence[Part], verb: Callable[[Part], Awaitable[T]]) -> list[T]:
    """All of them at once; when one fails the others finish first."""
    if len(parts) == 1:
        return [await verb(parts[0])]
    answers = await asyncio.gather(*(verb(part) for part in parts), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if not isinstance(answer, BaseException)]
