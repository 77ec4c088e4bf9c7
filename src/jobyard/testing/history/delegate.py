"""The verbs that leave no trace in a history, handed on as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobyard.domain.explain import Standing
from jobyard.domain.instant import Instant
from jobyard.domain.job import Job
from jobyard.domain.state import Settlement
from jobyard.ports.admin_store import Filter, GroupInfo, Page, QueueAges, QueueInfo
from jobyard.ports.record_store import LogEntry, Record
from jobyard.ports.schedule_store import Armed, TickInfo, WorkerInfo
from jobyard.ports.store import Finding, Migration, Store


class Delegate:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.url = store.url
        self.has_transactions = store.has_transactions
        self.is_remote = store.is_remote

    async def open(self) -> None:
        await self._store.open()

    async def close(self) -> None:
        await self._store.close()

    async def settle(self, settlement: Settlement, transaction: Any) -> None:
        await self._store.settle(settlement, transaction)

    async def diagnose(self) -> list[Finding]:
        return await self._store.diagnose()

    async def migrations(self) -> list[Migration]:
        return await self._store.migrations()

    async def wait_for_work(self, queues: Sequence[str], timeout_seconds: float) -> bool:
        return await self._store.wait_for_work(queues, timeout_seconds)

    async def wait_for_end(self, job_id: str, timeout_seconds: float) -> Job | None:
        return await self._store.wait_for_end(job_id, timeout_seconds)

    async def get(self, job_id: str) -> Job | None:
        return await self._store.get(job_id)

    async def find(self, where: Filter, limit: int = 50, cursor: str | None = None) -> Page:
        return await self._store.find(where, limit, cursor)

    async def queues(self) -> list[QueueInfo]:
        return await self._store.queues()

    async def ages(self) -> list[QueueAges]:
        return await self._store.ages()

    async def groups(self, queue: str, limit: int = 1000, after: str | None = None) -> list[GroupInfo]:
        return await self._store.groups(queue, limit, after)

    async def standing(self, job_id: str) -> Standing:
        return await self._store.standing(job_id)

    async def prune(self, limit: int = 1000) -> int:
        return await self._store.prune(limit)

    async def audit(self) -> list[str]:
        return await self._store.audit()

    async def now(self) -> Instant:
        return await self._store.now()

    async def arm(self, schedule: str, revision: int, since: Instant | None = None) -> bool:
        return await self._store.arm(schedule, revision, since)

    async def armed(self, limit: int = 1000, after: str | None = None) -> list[Armed]:
        return await self._store.armed(limit, after)

    async def ticks(self, schedule: str, limit: int = 50, before: Instant | None = None) -> list[TickInfo]:
        return await self._store.ticks(schedule, limit, before)

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        await self._store.heartbeat(worker, seconds)

    async def workers(self) -> list[WorkerInfo]:
        return await self._store.workers()

    async def put(
        self, collection: str, key: str, data: bytes, *, expect: int | None = None, expire_seconds: float | None = None
    ) -> int | None:
        return await self._store.put(collection, key, data, expect=expect, expire_seconds=expire_seconds)

    async def fetch(self, collection: str, key: str) -> Record | None:
        return await self._store.fetch(collection, key)

    async def fetch_all(self, collection: str, limit: int = 1000, after: str | None = None) -> list[Record]:
        return await self._store.fetch_all(collection, limit, after)

    async def remove(self, collection: str, key: str, *, expect: int | None = None) -> bool:
        return await self._store.remove(collection, key, expect=expect)

    async def append(self, log: str, data: bytes) -> int:
        return await self._store.append(log, data)

    async def read(self, log: str, after: int = 0, limit: int = 1000) -> list[LogEntry]:
        return await self._store.read(log, after, limit)

    async def trim(self, log: str, through: int) -> int:
        return await self._store.trim(log, through)
