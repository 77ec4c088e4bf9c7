"""Small named documents with compare-and-set and expiry, append-only logs, and worker beats."""

from __future__ import annotations

import sqlite3

import msgspec

from jobyard.domain.instant import FOREVER, Instant, after
from jobyard.ports.record_store import LogEntry, Record
from jobyard.ports.schedule_store import WorkerInfo
from jobyard.stores.sqlite.statements import sql
from jobyard.stores.sqlite.transaction import Transaction

LOAD_RECORD, PUT_RECORD, DELETE_RECORD = sql("load_record"), sql("put_record"), sql("delete_record")
LIST_RECORDS, APPEND_LOG, READ_LOG = sql("list_records"), sql("append_log"), sql("read_log")
LAST_OF_LOG, TRIM_LOG, PUT_TRIMMED = sql("last_of_log"), sql("trim_log"), sql("put_trimmed")
PUT_WORKER, DELETE_WORKER = sql("put_worker"), sql("delete_worker")


def present_version(tx: Transaction, collection: str, key: str) -> int:
    row = tx.cursor.execute(LOAD_RECORD, (collection, key)).fetchone()
    return 0 if row is None or row[1] <= tx.now else row[0]


def put(
    tx: Transaction, collection: str, key: str, data: bytes, expect: int | None, expire_seconds: float | None
) -> int | None:
    version = present_version(tx, collection, key)
    if expect is not None and version != expect:
        return None
    expires_at = FOREVER if expire_seconds is None else after(tx.now, expire_seconds)
    tx.cursor.execute(PUT_RECORD, (collection, key, version + 1, expires_at, data))
    return version + 1


def remove(tx: Transaction, collection: str, key: str, expect: int | None) -> bool:
    version = present_version(tx, collection, key)
    if version == 0 or (expect is not None and version != expect):
        return False
    tx.cursor.execute(DELETE_RECORD, (collection, key))
    return True


def fetch(connection: sqlite3.Connection, collection: str, key: str, now: Instant) -> Record | None:
    row = connection.execute(LOAD_RECORD, (collection, key)).fetchone()
    return None if row is None or row[1] <= now else Record(key, row[0], row[2])


def fetch_all(
    connection: sqlite3.Connection, collection: str, limit: int, after_key: str | None, now: Instant
) -> list[Record]:
    rows = connection.execute(LIST_RECORDS, (collection, after_key or "", now, limit))
    return [Record(*row) for row in rows]


def append(tx: Transaction, log: str, data: bytes) -> int:
    number: int = tx.cursor.execute(APPEND_LOG, (log, tx.now, data)).fetchall()[0][0]
    return number


def read(connection: sqlite3.Connection, log: str, after_number: int, limit: int) -> list[LogEntry]:
    return [LogEntry(*row) for row in connection.execute(READ_LOG, (log, after_number, limit))]


def trim(tx: Transaction, log: str, through: int) -> int:
    last: int | None = tx.cursor.execute(LAST_OF_LOG, (log, through)).fetchone()[0]
    if last is None:
        return 0
    # Numbers go on from there, even when no entry is left to tell.
    tx.cursor.execute(PUT_TRIMMED, (log, last))
    return tx.cursor.execute(TRIM_LOG, (log, last)).rowcount


def heartbeat(tx: Transaction, worker: WorkerInfo, seconds: float) -> None:
    if seconds <= 0:
        tx.cursor.execute(DELETE_WORKER, (worker.id,))
        return
    seen = msgspec.structs.replace(worker, seen_at=tx.now)
    tx.cursor.execute(PUT_WORKER, (worker.id, after(tx.now, seconds), msgspec.json.encode(seen)))
