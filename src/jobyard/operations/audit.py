"""The audit log: who changed what, and when. Entries never change; beyond a maximum, the oldest are removed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from jobyard.domain.access import AuditEntry, Principal, Role
from jobyard.errors import StoreError
from jobyard.ports.store import Store

LOG = "jobyard.audit"
# Larger details (thousands of job ids) are left out of an entry.
MAX_DETAILS_BYTES = 4096
# How many entries are kept, and after how many new ones the oldest are trimmed.
KEEP = 100_000
TRIM_EVERY = 100


class AuditRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    principal: str
    name: str
    role: Role
    action: str
    target: str = ""
    details: dict[str, Any] = {}


_decode = msgspec.json.Decoder(AuditRecord).decode


class Audit:
    def __init__(self, store: Store, keep: int = KEEP) -> None:
        self._store = store
        self._keep = keep
        self._until_trim = 0

    async def record(
        self, principal: Principal, action: str, target: str = "", details: Mapping[str, Any] | None = None
    ) -> int:
        """Append an entry; returns its number."""
        stored = dict(details or {})
        if len(msgspec.json.encode(stored)) > MAX_DETAILS_BYTES:
            stored = {"left_out": f"more than {MAX_DETAILS_BYTES} bytes"}
        entry = AuditRecord(principal.id, principal.name, principal.role, action, target, stored)
        number = await self._store.append(LOG, msgspec.json.encode(entry))
        await self._trim(number)
        return number

    async def _trim(self, newest: int) -> None:
        """Remove the oldest entries, once per TRIM_EVERY. An error is ignored: the new entry is already written."""
        self._until_trim -= 1
        if self._until_trim < 0 and newest > self._keep:
            with suppress(StoreError):
                await self._store.trim(LOG, newest - self._keep)
                self._until_trim = TRIM_EVERY

    async def read(self, after: int = 0, limit: int = 100) -> list[AuditEntry]:
        """Entries with a number above `after`, oldest first."""
        return [
            AuditEntry(number=entry.number, at=entry.at, **msgspec.structs.asdict(_decode(entry.data)))
            for entry in await self._store.read(LOG, after, limit)
        ]
