"""Records: small documents with compare-and-set and expiry, and append-only logs."""

from __future__ import annotations

from jobyard.domain.instant import FOREVER, after
from jobyard.ports.record_store import LogEntry, Record
from jobyard.stores.sqlite.connection import SqliteConnection
from jobyard.stores.sqlite.sql import SQL
from jobyard.stores.sqlite.transaction import Transaction

# A document that expires within a minute need not survive a power failure, so its write does not wait for the disk.
SHORT_LIVED_SECONDS = 60.0


class SqliteRecords:
    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection

    async def put(
        self, collection: str, key: str, data: bytes, *, expect: int | None = None, expire_seconds: float | None = None
    ) -> int | None:
        def put(tx: Transaction) -> int | None:
            version = current_version(tx, collection, key)
            if expect is not None and version != expect:
                return None
            expires_at = FOREVER if expire_seconds is None else after(tx.now, expire_seconds)
            tx.cursor.execute(SQL["put_record"], (collection, key, version + 1, expires_at, data))
            return version + 1

        durable = expire_seconds is None or expire_seconds > SHORT_LIVED_SECONDS
        return await self._connection.write(put, durable=durable)

    async def fetch(self, collection: str, key: str) -> Record | None:
        now = self._connection.clock.now()
        found = (collection, key)
        row = await self._connection.read(lambda reader: reader.execute(SQL["load_record"], found).fetchone())
        return None if row is None or row[1] <= now else Record(key, row[0], row[2])

    async def fetch_all(self, collection: str, limit: int = 1000, after: str | None = None) -> list[Record]:
        page = {"collection": collection, "after": after or "", "now": self._connection.clock.now(), "limit": limit}
        return await self._connection.read(lambda db: [Record(*row) for row in db.execute(SQL["list_records"], page)])

    async def remove(self, collection: str, key: str, *, expect: int | None = None) -> bool:
        def remove(tx: Transaction) -> bool:
            version = current_version(tx, collection, key)
            if version == 0 or (expect is not None and version != expect):
                return False
            tx.cursor.execute(SQL["delete_record"], (collection, key))
            return True

        return await self._connection.write(remove)

    async def append(self, log: str, data: bytes) -> int:
        def append(tx: Transaction) -> int:
            row = {"log": log, "at": tx.now, "data": data}
            return int(tx.cursor.execute(SQL["append_log"], row).fetchall()[0][0])

        return await self._connection.write(append)

    async def read(self, log: str, after: int = 0, limit: int = 1000) -> list[LogEntry]:
        return await self._connection.read(
            lambda reader: [LogEntry(*row) for row in reader.execute(SQL["read_log"], (log, after, limit))]
        )

    async def trim(self, log: str, through: int) -> int:
        def trim(tx: Transaction) -> int:
            last: int | None = tx.cursor.execute(SQL["last_log_number"], (log, through)).fetchone()[0]
            if last is None:
                return 0
            # Numbers must go on ascending even when no entry is left.
            tx.cursor.execute(SQL["put_trimmed"], (log, last))
            return tx.cursor.execute(SQL["trim_log"], (log, last)).rowcount

        return await self._connection.write(trim)


def current_version(tx: Transaction, collection: str, key: str) -> int:
    row = tx.cursor.execute(SQL["load_record"], (collection, key)).fetchone()
    return 0 if row is None or row[1] <= tx.now else row[0]
