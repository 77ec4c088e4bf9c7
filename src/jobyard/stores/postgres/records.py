"""The verbs of records: small documents with compare-and-set and expiry, and append-only logs."""

from __future__ import annotations

from jobyard.ports.record_store import LogEntry, Record
from jobyard.stores.postgres.columns import milliseconds
from jobyard.stores.postgres.desk import Desk


class RecordVerbs(Desk):
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

    async def read(self, log: str, after: int = 0, limit: int = 1000) -> list[LogEntry]:
        return [LogEntry(*row) for row in await self._rows("read_log", log, after, limit)]

    async def trim(self, log: str, through: int) -> int:
        count = await self._value("trim_log", log, through)
        assert isinstance(count, int)
        return count
