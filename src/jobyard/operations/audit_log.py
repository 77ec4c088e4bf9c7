"""The audit log: who changed what, and when. Entries never change; beyond a maximum, the oldest are removed.

It consists of several logs with a maximum each; reading merges them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from heapq import merge
from itertools import islice
from typing import Any, TypeAlias

import msgspec

from jobyard.domain.access import AuditEntry, AuditLog, Principal, Role
from jobyard.errors import StoreError
from jobyard.ports.store import Store

LOGS = {log: "jobyard.audit" if log is AuditLog.CHANGES else f"jobyard.audit.{log}" for log in AuditLog}
# Larger details (thousands of job ids) are left out of an entry.
MAX_DETAILS_BYTES = 4096
# How many entries of each log are kept, and after how many new ones the oldest are trimmed.
KEEP = 100_000
TRIM_EVERY = 100


class AuditRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    principal: str
    name: str
    role: Role
    action: str
    target: str = ""
    details: dict[str, Any] = {}


# The numbers of the last entries read, in the order of AuditLog.
Position: TypeAlias = tuple[int, ...]
START: Position = (0,) * len(AuditLog)

_decode = msgspec.json.Decoder(AuditRecord).decode


class Audit:
    def __init__(self, store: Store, keep: int = KEEP) -> None:
        self._store = store
        self._keep = keep
        self._until_trim = dict.fromkeys(AuditLog, 0)

    async def record(
        self, principal: Principal, action: str, target: str = "", details: Mapping[str, Any] | None = None
    ) -> int:
        """Append an entry; returns its number."""
        stored = dict(details or {})
        if len(msgspec.json.encode(stored)) > MAX_DETAILS_BYTES:
            stored = {"left_out": f"more than {MAX_DETAILS_BYTES} bytes"}
        entry = AuditRecord(principal.id, principal.name, principal.role, action, target, stored)
        log = AuditLog.of(principal, action)
        number = await self._store.append(LOGS[log], msgspec.json.encode(entry))
        await self._trim(log, number)
        return number

    async def _trim(self, log: AuditLog, newest: int) -> None:
        """Remove the oldest entries, once per TRIM_EVERY. An error is ignored: the new entry is already written."""
        self._until_trim[log] -= 1
        if self._until_trim[log] < 0 and newest > self._keep:
            with suppress(StoreError):
                await self._store.trim(LOGS[log], newest - self._keep)
                self._until_trim[log] = TRIM_EVERY

    async def read(self, after: Position = START, limit: int = 100) -> list[AuditEntry]:
        """Entries of all logs after this position, oldest first."""
        reads = (self._read(log, number, limit) for log, number in zip(AuditLog, after, strict=True))
        return list(islice(merge(*await asyncio.gather(*reads), key=lambda entry: entry.at), limit))

    async def newest(self, limit: int, before: Position | None = None) -> tuple[list[AuditEntry], Position]:
        """The last entries of all logs below this position, newest first: `read` backwards, also within one instant.

        Also returns the position they were read from. A page of fewer than `limit` entries is the last.
        """
        ends = tuple([await self._end(log) for log in AuditLog]) if before is None else before
        pages = await asyncio.gather(
            *(self._read(log, max(0, end - 1 - limit), limit) for log, end in zip(AuditLog, ends, strict=True))
        )
        # Reversed logs and reversed entries: `merge` keeps the order of equal times, so this is the mirror of `read`.
        backwards = [
            [each for each in reversed(page) if each.number < end] for page, end in zip(pages, ends, strict=True)
        ]
        found = merge(*reversed(backwards), key=lambda entry: entry.at, reverse=True)
        return list(islice(found, limit)), ends

    async def _end(self, log: AuditLog) -> int:
        """A number above all entries of the log, found by doubling and bisection: logs are read forwards."""
        low, high = 0, 1024
        while await self._store.read(LOGS[log], high, 1):
            low, high = high, 2 * high
        while low < high:
            middle = (low + high) // 2
            if await self._store.read(LOGS[log], middle, 1):
                low = middle + 1
            else:
                high = middle
        return low + 1

    async def _read(self, log: AuditLog, after: int, limit: int) -> list[AuditEntry]:
        return [
            AuditEntry(log=log, number=entry.number, at=entry.at, **msgspec.structs.asdict(_decode(entry.data)))
            for entry in await self._store.read(LOGS[log], after, limit)
        ]


def is_about(entry: AuditEntry, target: str) -> bool:
    """Whether it is a change to this, to a group of this queue, or to several jobs of which this is one."""
    return entry.target == target or entry.target.startswith(f"{target}/") or target in entry.details.get("ids", ())


def position_after(position: Position, entries: Sequence[AuditEntry]) -> Position:
    """The position behind these entries, which were read from `position` in either direction."""
    numbers = dict(zip(AuditLog, position, strict=True)) | {entry.log: entry.number for entry in entries}
    return tuple(numbers[log] for log in AuditLog)
