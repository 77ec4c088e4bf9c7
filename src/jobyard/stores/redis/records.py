"""Small named documents with compare-and-set and expiry, and append-only logs."""

from __future__ import annotations

from struct import Struct
from typing import Any

from jobyard.ports.record_store import LogEntry, Record
from jobyard.stores.redis.packing import milliseconds, text
from jobyard.stores.redis.scripts import command
from jobyard.stores.redis.server import Server

PUT, REMOVE, DOCUMENTS = command("put"), command("remove"), command("documents")
APPEND, READ, TRIM = command("append"), command("read"), command("trim")
TWO, AT = Struct(">dd"), Struct(">d")


async def put(
    server: Server, collection: str, key: str, data: bytes, expect: int | None, expire_seconds: float | None
) -> int | None:
    question: dict[str, Any] = {"collection": collection, "key": key, "data": text(data)}
    if expect is not None:
        question["expect"] = expect
    if expire_seconds is not None:
        question["expire"] = milliseconds(expire_seconds)
    version: int = await server.run(PUT, question)
    return None if version < 0 else version


async def remove(server: Server, collection: str, key: str, expect: int | None) -> bool:
    question: dict[str, Any] = {"collection": collection, "key": key}
    if expect is not None:
        question["expect"] = expect
    return bool(await server.run(REMOVE, question))


async def fetch(server: Server, collection: str, key: str) -> Record | None:
    found = _records(await server.run(DOCUMENTS, {"collection": collection, "key": key}))
    return found[0] if found else None


async def fetch_all(server: Server, collection: str, limit: int, after: str | None) -> list[Record]:
    question: dict[str, Any] = {"collection": collection, "limit": limit}
    if after is not None:
        question["after"] = after
    return _records(await server.run(DOCUMENTS, question))


def _records(flat: list[bytes]) -> list[Record]:
    return [
        Record(key.decode(), int(TWO.unpack_from(record)[0]), record[TWO.size :])
        for key, record in zip(flat[::2], flat[1::2], strict=True)
    ]


async def append(server: Server, log: str, data: bytes) -> int:
    number: int = await server.run(APPEND, {"log": log, "data": text(data)})
    return number


async def read(server: Server, log: str, after: int, limit: int) -> list[LogEntry]:
    if limit <= 0:
        return []
    before, entries = await server.run(READ, {"log": log, "after": after, "limit": limit})
    return [
        LogEntry(number, int(AT.unpack_from(entry)[0]), entry[AT.size :])
        for number, entry in enumerate(entries, start=before + 1)
    ]


async def trim(server: Server, log: str, through: int) -> int:
    count: int = await server.run(TRIM, {"log": log, "through": through})
    return count
