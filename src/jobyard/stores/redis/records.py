"""Small named documents with compare-and-set and expiry, append-only logs, and worker beats."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any

import msgspec

from jobyard.domain.instant import Instant
from jobyard.ports.store import Entry, Record, WorkerInfo
from jobyard.stores.redis.packing import milliseconds, text
from jobyard.stores.redis.scripts import command
from jobyard.stores.redis.server import Server

PUT, REMOVE, DOCUMENTS, APPEND = command("put"), command("remove"), command("documents"), command("append")
BEAT, WORKERS = command("beat"), command("workers")
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


async def read(server: Server, log: str, after: int, limit: int) -> list[Entry]:
    """Entries are never taken away, so an entry's number is its place."""
    if limit <= 0:
        return []
    entries = await server.ask("LRANGE", f"{server.prefix}:log:{log}", after, after + limit - 1)
    return [
        Entry(number, int(AT.unpack_from(entry)[0]), entry[AT.size :])
        for number, entry in enumerate(entries, start=after + 1)
    ]


async def beat(server: Server, worker: WorkerInfo, seconds: float) -> None:
    question = {"id": worker.id, "data": text(msgspec.json.encode(worker)), "till": milliseconds(seconds)}
    await server.run(BEAT, question)


async def workers(server: Server) -> list[WorkerInfo]:
    now, beats = await server.run(WORKERS, {})
    return alive(beats, now)


def alive(beats: Iterable[bytes], now: Instant) -> list[WorkerInfo]:
    found: list[WorkerInfo] = []
    for beat_ in beats:
        until, seen_at = TWO.unpack_from(beat_)
        if now < until:
            worker = msgspec.json.decode(beat_[TWO.size :], type=WorkerInfo)
            found.append(msgspec.structs.replace(worker, seen_at=int(seen_at)))
    return sorted(found, key=lambda worker: worker.id)
