"""The record port of a store: small documents and append-only logs, for features that need storage."""

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
        """Write a small document and return its new version, counted from 1.

        With `expect`, only if that is its present version (0: it must not exist); otherwise nothing changes and the
        result is None. An expired document does not exist.
        """

    async def fetch(self, collection: str, key: str) -> Record | None: ...

    async def fetch_all(self, collection: str, limit: int = 1000, after: str | None = None) -> list[Record]:
        """The documents of a collection, by key; only keys after `after`."""

    async def remove(self, collection: str, key: str, *, expect: int | None = None) -> bool: ...

    async def append(self, log: str, data: bytes) -> int:
        """Add an entry to an append-only log and return its number, ascending."""

    async def read(self, log: str, after: int = 0, limit: int = 1000) -> list[LogEntry]: ...

    async def trim(self, log: str, through: int) -> int:
        """Remove the entries up to and including that number and return how many. Numbers are not reused."""
