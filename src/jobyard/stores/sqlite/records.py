"""Records: small documents with compare-and-set and expiry, and append-only logs."""

from __future__ import annotations

from jobyard.domain.instant import FOREVER, after
from jobyard.ports.record_store import LogEntry, Record
from jobyard.stores.sqlite.connection import SqliteConnection
from jobyard.stores.sqlite.sql import SQL
from jobyard.stores.sqlite.transaction import Transaction

LOAD_RECORD = SQL["load_record"]
LIST_RECORDS = SQL["list_records"]
PUT_RECORD = SQL["put_record"]
DELETE_RECORD = SQL["delete_record"]
APPEND_LOG = SQL["append_log"]
READ_LOG = SQL["read_log"]
LAST_LOG_NUMBER = SQL["last_log_number"]
TRIM_LOG = SQL["trim_log"]
PUT_TRIMMED = SQL["put_trimmed"]

# A document that expires within a minute need not survive a power failure, so its write does not wait for the disk.
SHORT_LIVED_SECONDS = 60.0


class SqliteRecords:
    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection

    async def put(
        self, collection: str, key: str, data: bytes, *, expect: int | None = None, expire_seconds: float | None = None
    ) -> int | None:
        durable = expire_seconds is None or expire_seconds > SHORT_LIVED_SECONDS
        return await self._connection.write(
            lambda tx: put(tx, collection, key, data, expect, expire_seconds), durable=durable
        )

    async def fetch(self, collection: str, key: str) -> Record | None:
        now = self._connection.clock.now()
        row = await self._connection.read(lambda reader: reader.execute(LOAD_RECORD, (collection, key)).fetchone())
        return None if row is None or row[1] <= now else Record(key, row[0], row[2])

    async def fetch_all(self, collection: str, limit: int = 1000, after: str | None = None) -> list[Record]:
        page = {"collection": collection, "after": after or "", "now": self._connection.clock.now(), "limit": limit}
        return await self._connection.read(lambda reader: [Record(*row) for row in reader.execute(LIST_RECORDS, page)])

    async def remove(self, collection: str, key: str, *, expect: int | None = None) -> bool:
        return await self._connection.write(lambda tx: remove(tx, collection, key, expect))

    async def append(self, log: str, data: bytes) -> int:
        return await self._connection.write(lambda tx: append(tx, log, data))

    async def read(self, log: str, after: int = 0, limit: int = 1000) -> list[LogEntry]:
        return await self._connection.read(
            lambda reader: [LogEntry(*row) for row in reader.execute(READ_LOG, (log, after, limit))]
        )

    async def trim(self, log: str, through: int) -> int:
        return await self._connection.write(lambda tx: trim(tx, log, through))


def current_version(tx: Transaction, collection: str, key: str) -> int:
    row = tx.cursor.execute(LOAD_RECORD, (collection, key)).fetchone()
    return 0 if row is None or row[1] <= tx.now else row[0]


def put(
    tx: Transaction, collection: str, key: str, data: bytes, expect: int | None, expire_seconds: float | None
) -> int | None:
    version = current_version(tx, collection, key)
    if expect is not None and version != expect:
        return None
    expires_at = FOREVER if expire_seconds is None else after(tx.now, expire_seconds)
    tx.cursor.execute(PUT_RECORD, (collection, key, version + 1, expires_at, data))
    return version + 1


def remove(tx: Transaction, collection: str, key: str, expect: int | None) -> bool:
    version = current_version(tx, collection, key)
    if version == 0 or (expect is not None and version != expect):
        return False
    tx.cursor.execute(DELETE_RECORD, (collection, key))
    return True


def append(tx: Transaction, log: str, data: bytes) -> int:
    number: int = tx.cursor.execute(APPEND_LOG, {"log": log, "at": tx.now, "data": data}).fetchall()[0][0]
    return number


def trim(tx: Transaction, log: str, through: int) -> int:
    last: int | None = tx.cursor.execute(LAST_LOG_NUMBER, (log, through)).fetchone()[0]
    if last is None:
        return 0
    # Numbers must go on ascending even when no entry is left.
    tx.cursor.execute(PUT_TRIMMED, (log, last))
    return tx.cursor.execute(TRIM_LOG, (log, last)).rowcount
