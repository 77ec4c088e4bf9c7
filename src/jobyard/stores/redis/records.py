"""Small documents with compare-and-set and expiry, and append-only logs."""

from __future__ import annotations

from struct import Struct
from typing import Any

from jobyard.ports.record_store import LogEntry, Record
from jobyard.stores.redis.client import RedisClient
from jobyard.stores.redis.codec import as_string, milliseconds
from jobyard.stores.redis.scripts import function_name

PUT, REMOVE, FETCH = function_name("put_record"), function_name("remove_record"), function_name("fetch_records")
APPEND, READ, TRIM = function_name("append_log"), function_name("read_log"), function_name("trim_log")
RECORD_HEAD = Struct(">dd")  # version, expires
ENTRY_HEAD = Struct(">d")  # at


class RedisRecords:
    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def put(
        self, collection: str, key: str, data: bytes, *, expect: int | None = None, expire_seconds: float | None = None
    ) -> int | None:
        request: dict[str, Any] = {"collection": collection, "key": key, "data": as_string(data)}
        if expect is not None:
            request["expect"] = expect
        if expire_seconds is not None:
            request["expire"] = milliseconds(expire_seconds)
        version: int = await self._client.call(PUT, request)
        return None if version < 0 else version

    async def remove(self, collection: str, key: str, *, expect: int | None = None) -> bool:
        request: dict[str, Any] = {"collection": collection, "key": key}
        if expect is not None:
            request["expect"] = expect
        return bool(await self._client.call(REMOVE, request))

    async def fetch(self, collection: str, key: str) -> Record | None:
        found = _decode_records(await self._client.call(FETCH, {"collection": collection, "key": key}))
        return found[0] if found else None

    async def fetch_all(self, collection: str, limit: int = 1000, after: str | None = None) -> list[Record]:
        request: dict[str, Any] = {"collection": collection, "limit": limit}
        if after is not None:
            request["after"] = after
        return _decode_records(await self._client.call(FETCH, request))

    async def append(self, log: str, data: bytes) -> int:
        number: int = await self._client.call(APPEND, {"log": log, "data": as_string(data)})
        return number

    async def read(self, log: str, after: int = 0, limit: int = 1000) -> list[LogEntry]:
        if limit <= 0:
            return []
        before, entries = await self._client.call(READ, {"log": log, "after": after, "limit": limit})
        return [
            LogEntry(number, int(ENTRY_HEAD.unpack_from(entry)[0]), entry[ENTRY_HEAD.size :])
            for number, entry in enumerate(entries, start=before + 1)
        ]

    async def trim(self, log: str, through: int) -> int:
        count: int = await self._client.call(TRIM, {"log": log, "through": through})
        return count


def _decode_records(flat: list[bytes]) -> list[Record]:
    return [
        Record(key.decode(), int(RECORD_HEAD.unpack_from(record)[0]), record[RECORD_HEAD.size :])
        for key, record in zip(flat[::2], flat[1::2], strict=True)
    ]
