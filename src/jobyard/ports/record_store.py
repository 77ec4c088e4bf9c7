"""The part of the store port that belongs to records: small documents and append-only logs, for whoever needs them."""

from __future__ import annotations

from typing import Protocol

import msgspec

from jobyard.domain.instant import Instant


class Record(msgspec.Struct, frozen=True):
    key: str
    version: int
    data: bytes


class LogEntry(msgspec.Struct, frozen=True):
    number: int
    at: Instant
    data: bytes


class RecordStore(Protocol):
    async def put(
        self, collection: str, key: str, data: bytes, *, expect: int | None = None, expire_seconds: float | None = None
    ) -> int | None:
        """Write a small document; answers its new version, counted from 1.

        With `expect` only if that is its present version (0: it must not exist), else answers None and changes
        nothing. An expired document does not exist.
        """
        ...

    async def fetch(self, collection: str, key: str) -> Record | None: ...

    async def fetch_all(self, collection: str, limit: int = 1000, after: str | None = None) -> list[Record]:
        """By key."""
        ...

    async def remove(self, collection: str, key: str, *, expect: int | None = None) -> bool: ...

    async def append(self, log: str, data: bytes) -> int:
        """Add to an append-only log; answers the entry's number, ascending."""
        ...

    async def read(self, log: str, after: int = 0, limit: int = 1000) -> list[LogEntry]: ...

    async def trim(self, log: str, through: int) -> int:
        """Remove the entries up to and including that number; answers how many. Later numbers go on ascending."""
        ...
