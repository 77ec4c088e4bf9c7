"""Records: small documents with compare-and-set and expiry, and append-only logs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from jobyard.domain.instant import FOREVER, Instant, after
from jobyard.ports.record_store import LogEntry, Record
from jobyard.stores.memory.connection import MemoryConnection

# Expired documents are removed from a collection that reaches this size, then each time it has doubled.
FIRST_SWEEP_SIZE = 1000


@dataclass(slots=True, frozen=True)
class StoredDocument:
    record: Record
    expires_at: Instant


class MemoryRecords:
    def __init__(self, connection: MemoryConnection) -> None:
        self._connection = connection
        self._collections: dict[str, dict[str, StoredDocument]] = {}
        self._sweep_at: dict[str, int] = {}  # size of each collection at which it is swept next
        self._logs: dict[str, list[LogEntry]] = {}
        self._last_numbers: dict[str, int] = {}  # of each log; numbers go on ascending after a trim

    async def put(
        self, collection: str, key: str, data: bytes, *, expect: int | None = None, expire_seconds: float | None = None
    ) -> int | None:
        with self._connection.locked() as now:
            present = self._present(collection, key, now)
            version = 0 if present is None else present.version
            if expect is not None and expect != version:
                return None
            expires_at = FOREVER if expire_seconds is None else after(now, expire_seconds)
            documents = self._collections.setdefault(collection, {})
            documents[key] = StoredDocument(Record(key, version + 1, data), expires_at)
            if len(documents) >= self._sweep_at.get(collection, FIRST_SWEEP_SIZE):
                self._sweep(collection, now)
            return version + 1

    async def fetch(self, collection: str, key: str) -> Record | None:
        with self._connection.locked() as now:
            return self._present(collection, key, now)

    async def fetch_all(self, collection: str, limit: int = 1000, after: str | None = None) -> list[Record]:
        with self._connection.locked() as now:
            keys = sorted(key for key in self._collections.get(collection, {}) if after is None or key > after)
            records = (self._present(collection, key, now) for key in keys)
            return list(islice((record for record in records if record is not None), limit))

    async def remove(self, collection: str, key: str, *, expect: int | None = None) -> bool:
        with self._connection.locked() as now:
            present = self._present(collection, key, now)
            if present is None or (expect is not None and expect != present.version):
                return False
            del self._collections[collection][key]
            return True

    async def append(self, log: str, data: bytes) -> int:
        with self._connection.locked() as now:
            number = self._last_numbers[log] = self._last_numbers.get(log, 0) + 1
            self._logs.setdefault(log, []).append(LogEntry(number, now, data))
            return number

    async def read(self, log: str, after: int = 0, limit: int = 1000) -> list[LogEntry]:
        with self._connection.locked():
            entries = self._logs.get(log, [])
            return list(islice((entry for entry in entries if entry.number > after), limit))

    async def trim(self, log: str, through: int) -> int:
        with self._connection.locked():
            entries = self._logs.get(log, [])
            stay = [entry for entry in entries if entry.number > through]
            self._logs[log] = stay
            return len(entries) - len(stay)

    def _present(self, collection: str, key: str, now: Instant) -> Record | None:
        document = self._collections.get(collection, {}).get(key)
        return document.record if document is not None and now < document.expires_at else None

    def _sweep(self, collection: str, now: Instant) -> None:
        documents = self._collections[collection]
        for key in [key for key, document in documents.items() if document.expires_at <= now]:
            del documents[key]
        self._sweep_at[collection] = max(FIRST_SWEEP_SIZE, 2 * len(documents))
