"""Records: small documents with compare-and-set and expiry, and append-only logs."""

from __future__ import annotations

from jobyard.ports.record_store import LogEntry, Record
from jobyard.stores.postgres.codec import milliseconds
from jobyard.stores.postgres.connection import PostgresConnection


class PostgresRecords:
    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    async def put(
        self, collection: str, key: str, data: bytes, *, expect: int | None = None, expire_seconds: float | None = None
    ) -> int | None:
        expire = None if expire_seconds is None else milliseconds(expire_seconds)
        document = (collection, key, data, expect, expire)
        version: int | None = await self._connection.fetch_value("put_record", self._connection.now(), *document)
        return version

    async def fetch(self, collection: str, key: str) -> Record | None:
        rows = await self._connection.fetch("fetch_record", self._connection.now(), collection, key)
        return Record(key, *rows[0]) if rows else None

    async def fetch_all(self, collection: str, limit: int = 1000, after: str | None = None) -> list[Record]:
        rows = await self._connection.fetch("list_records", self._connection.now(), collection, after, limit)
        return [Record(*row) for row in rows]

    async def remove(self, collection: str, key: str, *, expect: int | None = None) -> bool:
        return bool(await self._connection.fetch("delete_record", self._connection.now(), collection, key, expect))

    async def append(self, log: str, data: bytes) -> int:
        return int(await self._connection.fetch_value("append_log", self._connection.now(), log, data))

    async def read(self, log: str, after: int = 0, limit: int = 1000) -> list[LogEntry]:
        return [LogEntry(*row) for row in await self._connection.fetch("read_log", log, after, limit)]

    async def trim(self, log: str, through: int) -> int:
        return int(await self._connection.fetch_value("trim_log", log, through))
