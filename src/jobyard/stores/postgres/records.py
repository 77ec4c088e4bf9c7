"""The verbs of the clock and of records: schedules that fire once, live workers, small documents, logs."""

from __future__ import annotations

import msgspec

from jobyard.domain.instant import Instant
from jobyard.domain.job import NewJob
from jobyard.ports.store import Entry, Inserted, Record, WorkerInfo
from jobyard.stores.postgres.arriving import inserted
from jobyard.stores.postgres.columns import columns, milliseconds
from jobyard.stores.postgres.desk import Desk
from jobyard.stores.postgres.standing import workers


class RecordVerbs(Desk):
    async def now(self) -> Instant:
        present = await self._value("now", self._now())
        assert isinstance(present, int)
        return present

    async def fire(self, schedule: str, tick: Instant, job: NewJob) -> Inserted | None:
        rows = await self._rows("fire", schedule, tick, self._now(), *columns([job]))
        if not rows:
            return None
        [answer] = inserted([job], rows)
        if answer.created:
            self._arrived()
        return answer

    async def beat(self, worker: WorkerInfo, seconds: float) -> None:
        if seconds <= 0:
            await self._rows("delete_worker", worker.id)
        else:
            await self._rows("beat", self._now(), worker.id, milliseconds(seconds), msgspec.json.encode(worker))

    async def workers(self) -> list[WorkerInfo]:
        now = self._now()
        return await self._run(lambda connection, statements: workers(connection, statements, now))

    async def put(
        self, collection: str, key: str, data: bytes, *, expect: int | None = None, expire_seconds: float | None = None
    ) -> int | None:
        expire = None if expire_seconds is None else milliseconds(expire_seconds)
        version = await self._value("put_record", self._now(), collection, key, data, expect, expire)
        assert version is None or isinstance(version, int)
        return version

    async def fetch(self, collection: str, key: str) -> Record | None:
        rows = await self._rows("fetch_record", self._now(), collection, key)
        return Record(key, *rows[0]) if rows else None

    async def fetch_all(self, collection: str, limit: int = 1000, after: str | None = None) -> list[Record]:
        return [Record(*row) for row in await self._rows("list_records", self._now(), collection, after, limit)]

    async def remove(self, collection: str, key: str, *, expect: int | None = None) -> bool:
        return bool(await self._rows("remove_record", self._now(), collection, key, expect))

    async def append(self, log: str, data: bytes) -> int:
        number = await self._value("append_log", self._now(), log, data)
        assert isinstance(number, int)
        return number

    async def read(self, log: str, after: int = 0, limit: int = 1000) -> list[Entry]:
        return [Entry(*row) for row in await self._rows("read_log", log, after, limit)]
