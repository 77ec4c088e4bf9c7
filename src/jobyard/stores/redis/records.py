"""Small documents with compare-and-set and expiry, and append-only logs."""

from __future__ import annotations

from struct import Struct

from jobyard.ports.record_store import LogEntry, Record
from jobyard.stores.redis.client import RedisClient
from jobyard.stores.redis.codec import as_string, milliseconds

RECORD_HEAD = Struct(">dd")  # version, expires
ENTRY_HEAD = Struct(">d")  # at


class RedisRecords:
    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def put(
        self, collection: str, key: str, data: bytes, *, expect: int | None = None, expire_seconds: float | None = None
    ) -> int | None:
        expire = None if expire_seconds is None else milliseconds(expire_seconds)
        request = {"collection": collection, "key": key, "data": as_string(data), "expect": expect, "expire": expire}
        version: int = await self._client.call("put_record", request)
        return None if version < 0 else version

    async def remove(self, collection: str, key: str, *, expect: int | None = None) -> bool:
        request = {"collection": collection, "key": key, "expect": expect}
        return bool(await self._client.call("remove_record", request))

    async def fetch(self, collection: str, key: str) -> Record | None:
        found = _decode_records(await self._client.call("fetch_records", {"collection": collection, "key": key}))
        return found[0] if found else None

    async def fetch_all(self, collection: str, limit: int = 1000, after: str | None = None) -> list[Record]:
        request = {"collection": collection, "limit": limit, "after": after}
        return _decode_records(await self._client.call("fetch_records", request))

    async def append(self, log: str, data: bytes) -> int:
        return int(await self._client.call("append_log", {"log": log, "data": as_string(data)}))

    async def read(self, log: str, after: int = 0, limit: int = 1000) -> list[LogEntry]:
        if limit <= 0:
            return []
        before, entries = await self._client.call("read_log", {"log": log, "after": after, "limit": limit})
        return [
            LogEntry(number, int(ENTRY_HEAD.unpack_from(entry)[0]), entry[ENTRY_HEAD.size :])
            for number, entry in enumerate(entries, start=before + 1)
        ]

    async def trim(self, log: str, through: int) -> int:
        return int(await self._client.call("trim_log", {"log": log, "through": through}))


def _decode_records(flat: list[bytes]) -> list[Record]:
    return [
        Record(key.decode(), int(RECORD_HEAD.unpack_from(record)[0]), record[RECORD_HEAD.size :])
        for key, record in zip(flat[::2], flat[1::2], strict=True)
    ]
