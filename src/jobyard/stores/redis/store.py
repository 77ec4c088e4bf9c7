"""The Redis store: one server, many machines; each verb is one command on it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from jobyard.domain.explain import Standing
from jobyard.domain.instant import Instant
from jobyard.domain.job import Job, NewJob, QueueSettings
from jobyard.domain.lease import ExpiredLease, Lease, LeaseKey
from jobyard.domain.state import Settlement
from jobyard.errors import NotPossible
from jobyard.ports.admin_store import Action, Changed, Filter, GroupInfo, Page, QueueAges, QueueInfo
from jobyard.ports.clock import Clock
from jobyard.ports.job_store import Exchange, Extended, Inserted, Report
from jobyard.ports.record_store import LogEntry, Record
from jobyard.ports.schedule_store import Armed, Decided, Tick, TickInfo, WorkerInfo
from jobyard.ports.store import Finding, Migration, Store
from jobyard.stores._shared.clock import AdjustableClock
from jobyard.stores._shared.polling_claim import POLL_SECONDS
from jobyard.stores.redis import exchange, insert, people, records, timekeeping, waiting
from jobyard.stores.redis.address import read
from jobyard.stores.redis.examine import findings, migrations, prepare
from jobyard.stores.redis.ordering import Order
from jobyard.stores.redis.server import Server

T = TypeVar("T")
NO_TRANSACTION = "Redis has no transaction that a caller could hold open and jobyard join"


class RedisStore:
    """`connections` bounds those of one event loop; `prefix` keeps several yards apart on one server."""

    has_transactions = False
    is_remote = True

    def __init__(self, url: str, clock: Clock | None = None, *, connections: int = 16, prefix: str = "jobyard") -> None:
        address = read(url)
        self.url = address.shown
        self._server = Server(address, prefix, connections, clock)
        self._homes = exchange.Homes()
        self._cancels_asked = 0
        self._unsubscribe: Callable[[], None] | None = None

    async def open(self) -> None:
        is_first, self._server.is_open = not self._server.is_open, True
        try:
            await prepare(self._server)
        except BaseException:
            if is_first:
                await self.close()
            raise
        clock = self._server.clock
        if self._unsubscribe is None and isinstance(clock, AdjustableClock):
            self._unsubscribe = clock.subscribe(self._clock_turned)

    async def close(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        await asyncio.shield(self._server.close())

    async def diagnose(self) -> list[Finding]:
        return await self._beside(findings)

    async def migrations(self) -> list[Migration]:
        return await self._beside(migrations)

    def for_event_loop(self) -> Store:
        return self

    async def _beside(self, work: Callable[[Server], Awaitable[T]]) -> T:
        """Also when the store is not open."""
        if self._server.is_open:
            return await work(self._server)
        server = Server(self._server.address, self._server.prefix, 1, self._server.clock)
        server.is_open = True
        try:
            return await work(server)
        finally:
            await server.close()

    def _clock_turned(self) -> None:
        self._server.everywhere(lambda station: station.look_again())

    # The hot path

    async def insert(self, jobs: Sequence[NewJob], transaction: Any = None) -> list[Inserted]:
        if transaction is not None:
            raise NotPossible(f"{NO_TRANSACTION}; insert without one.")
        if not jobs:
            return []
        return await insert.insert(self._server, insert.Call(jobs))

    async def exchange(
        self,
        worker: str,
        settlements: Sequence[Settlement],
        queues: Sequence[str],
        wanted: int,
        lease_seconds: float,
        until: asyncio.Future[None] | None = None,
    ) -> Exchange:
        now = partial(exchange.exchange, self._server, self._homes, worker, settlements, queues, wanted, lease_seconds)
        if until is None or settlements or wanted <= 0:
            return await now()
        ear = self._server.station.ear
        await ear.wait_until_ready(waiting.UNTOLD_NAP_SECONDS)
        if ear.is_ready and not until.done():
            return await Order(self._server, self._homes, worker, queues, wanted, lease_seconds).wait(until)
        answer = await now()
        if answer.leases or until.done():
            return answer
        asked = partial(waiting.wait_for_work, self._server, queues, POLL_SECONDS, lambda: self._cancels_asked)
        return await now() if await asked(until) else answer

    async def settle(self, settlement: Settlement, transaction: Any) -> None:
        raise NotPossible(f"{NO_TRANSACTION}; return the result instead.")

    async def extend(
        self, worker: str, keys: Sequence[LeaseKey], lease_seconds: float, *, unacknowledged: bool = False
    ) -> Extended:
        return await exchange.extend(
            self._server, self._homes, worker, keys, lease_seconds, unacknowledged=unacknowledged
        )

    async def report(self, reports: Sequence[Report]) -> tuple[LeaseKey, ...]:
        return await exchange.report(self._server, self._homes, reports)

    async def reclaim(self, limit: int = 1000) -> list[ExpiredLease]:
        return await exchange.reclaim(self._server, limit)

    async def wait_for_work(self, queues: Sequence[str], timeout_seconds: float) -> bool:
        return await waiting.wait_for_work(self._server, queues, timeout_seconds, lambda: self._cancels_asked)

    async def wait_for_end(self, job_id: str, timeout_seconds: float) -> Job | None:
        return await waiting.wait_for_end(self._server, job_id, timeout_seconds)

    async def adopt(self, job: NewJob, worker: str, external_id: str) -> Lease:
        return await insert.adopt(self._server, job, worker, external_id, exchange.new_token())

    async def signal(self, job_id: str, name: str, data: bytes = b"null") -> bool:
        return await people.signal(self._server, job_id, name, data)

    # People

    async def get(self, job_id: str) -> Job | None:
        return await people.get(self._server, job_id)

    async def find(self, where: Filter, limit: int = 50, cursor: str | None = None) -> Page:
        return await people.find(self._server, where, limit, cursor)

    async def change(self, action: Action, job_ids: Sequence[str], *, reason: str = "", priority: int = 0) -> Changed:
        answer = await people.change(self._server, action, job_ids, reason, priority)
        if action is Action.CANCEL and answer.changed:
            self._cancels_asked += 1
        return answer

    async def configure(self, queue: str, settings: QueueSettings) -> None:
        await people.configure(self._server, queue, settings)

    async def set_paused(self, queue: str, group: str | None, paused: bool) -> None:
        await people.set_paused(self._server, queue, group, paused)

    async def set_limit(self, queue: str, group: str, limit: int | None) -> None:
        await people.set_limit(self._server, queue, group, limit)

    async def queues(self) -> list[QueueInfo]:
        return await people.queues(self._server)

    async def ages(self) -> list[QueueAges]:
        return await people.ages(self._server)

    async def groups(self, queue: str, limit: int = 1000, after: str | None = None) -> list[GroupInfo]:
        return await people.groups(self._server, queue, limit, after)

    async def standing(self, job_id: str) -> Standing:
        return await people.standing(self._server, job_id)

    async def prune(self, limit: int = 1000) -> int:
        return await people.prune(self._server, limit)

    async def audit(self) -> list[str]:
        return await people.audit(self._server)

    # The clock

    async def now(self) -> Instant:
        if self._server.clock is not None:
            return self._server.clock.now()
        seconds, microseconds = await self._server.ask("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def arm(self, schedule: str, revision: int, since: Instant | None = None) -> bool:
        return await timekeeping.arm(self._server, schedule, revision, since)

    async def disarm(self, schedule: str, revision: int | None = None) -> bool:
        return await timekeeping.disarm(self._server, schedule, revision)

    async def armed(self, limit: int = 1000, after: str | None = None) -> list[Armed]:
        return await timekeeping.armed(self._server, limit, after)

    async def decide(self, ticks: Sequence[Tick]) -> list[Decided]:
        return await timekeeping.decide(self._server, ticks) if ticks else []

    async def ticks(self, schedule: str, limit: int = 50, before: Instant | None = None) -> list[TickInfo]:
        return await timekeeping.ticks(self._server, schedule, limit, before)

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        await timekeeping.heartbeat(self._server, worker, seconds)

    async def workers(self) -> list[WorkerInfo]:
        return await timekeeping.workers(self._server)

    # Records

    async def put(
        self, collection: str, key: str, data: bytes, *, expect: int | None = None, expire_seconds: float | None = None
    ) -> int | None:
        return await records.put(self._server, collection, key, data, expect, expire_seconds)

    async def fetch(self, collection: str, key: str) -> Record | None:
        return await records.fetch(self._server, collection, key)

    async def fetch_all(self, collection: str, limit: int = 1000, after: str | None = None) -> list[Record]:
        return await records.fetch_all(self._server, collection, limit, after)

    async def remove(self, collection: str, key: str, *, expect: int | None = None) -> bool:
        return await records.remove(self._server, collection, key, expect)

    async def append(self, log: str, data: bytes) -> int:
        return await records.append(self._server, log, data)

    async def read(self, log: str, after: int = 0, limit: int = 1000) -> list[LogEntry]:
        return await records.read(self._server, log, after, limit)

    async def trim(self, log: str, through: int) -> int:
        return await records.trim(self._server, log, through)
