"""Typed documents in the record store, changed by compare-and-set."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

import msgspec

from jobyard.ports.record_store import RecordStore

T = TypeVar("T")
PAGE = 1000


class Collection(Generic[T]):
    """The documents of one type, by key."""

    def __init__(self, records: RecordStore, name: str, type_: type[T], expire_seconds: float | None = None) -> None:
        self._records = records
        self._name = name
        self._expire_seconds = expire_seconds
        self._decoder = msgspec.json.Decoder(type_)
        self._encode = msgspec.json.Encoder().encode

    async def get(self, key: str) -> T | None:
        return (await self.get_versioned(key))[0]

    async def get_versioned(self, key: str) -> tuple[T | None, int]:
        """The document and its version; version 0 if it does not exist."""
        record = await self._records.fetch(self._name, key)
        return (None, 0) if record is None else (self._decoder.decode(record.data), record.version)

    async def create(self, key: str, value: T) -> bool:
        """Whether it was written: False if the key exists."""
        return await self.put(key, value, expect=0)

    async def put(self, key: str, value: T, expect: int | None = None) -> bool:
        data = self._encode(value)
        version = await self._records.put(self._name, key, data, expect=expect, expire_seconds=self._expire_seconds)
        return version is not None

    async def update(self, key: str, change: Callable[[T | None], T | None]) -> T | None:
        """Replace the document by `change(document)`; a result of None, or the same document, writes nothing.

        `change` is called again when another process was faster. Returns the document as it is then.
        """
        while True:
            known, version = await self.get_versioned(key)
            new = change(known)
            if new is None or new == known or await self.put(key, new, expect=version):
                return known if new is None else new

    async def remove(self, key: str) -> bool:
        return await self._records.remove(self._name, key)

    async def remove_unchanged(self, key: str, value: T) -> bool:
        """Remove the document only if it is still this one."""
        known, version = await self.get_versioned(key)
        return known == value and await self._records.remove(self._name, key, expect=version)

    async def all(self) -> list[T]:
        return [value async for _, value in self.walk()]

    async def walk(self, after: str | None = None) -> AsyncIterator[tuple[str, T]]:
        """All documents by key, only those after `after`."""
        while page := await self._records.fetch_all(self._name, PAGE, after):
            for record in page:
                yield record.key, self._decoder.decode(record.data)
            if len(page) < PAGE:
                return
            after = page[-1].key

    async def with_prefix(self, prefix: str) -> list[T]:
        """The documents whose key begins with the prefix; for few of them."""
        page = await self._records.fetch_all(self._name, FEW, prefix)
        return [self._decoder.decode(record.data) for record in page if record.key.startswith(prefix)]


FEW = 20
