"""The store port: small enough to keep in the head, cut at lifecycle verbs.

Common to all verbs:
- a verb is atomic: it happens wholly or, when it raises, not at all;
- the store's clock decides what is due and what has expired, never the caller's;
- before a verb looks at the line it lets the jobs whose time has come join it, ordered by (run_at, sequence);
- verbs may be called from any thread that runs an event loop, on the handle given by `for_event_loop()` there;
- cancelling the caller never undoes half a verb: it may still take effect.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec

from jobyard.ports.admin_store import AdminStore
from jobyard.ports.job_store import JobStore
from jobyard.ports.record_store import RecordStore
from jobyard.ports.schedule_store import ScheduleStore


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(msgspec.Struct, frozen=True, rename={"check": "what", "message": "says", "advice": "cure"}):
    """The result of one diagnostic check, with advice when something is wrong."""

    level: Level
    check: str
    message: str
    advice: str = ""


class Migration(msgspec.Struct, frozen=True):
    number: int
    name: str
    text: str  # what is executed, as a person may do by hand
    applied: bool


class Store(JobStore, AdminStore, ScheduleStore, RecordStore, Protocol):
    url: str  # as given, without secrets
    has_transactions: bool  # whether insert and settle can join the caller's own
    is_remote: bool  # it works in another process: it pays to have the next exchange there before this one is answered

    async def open(self) -> None:
        """Connect and bring the schema up to date; safe from several processes at once, and twice."""
        ...

    async def close(self) -> None:
        """Finish what was handed in, then let go; safe twice."""
        ...

    async def diagnose(self) -> list[Finding]:
        """What an operator should know about the engine below: reachable, writable, safe, with room to go on.

        Raises StoreError only when the engine cannot be asked at all.
        """
        ...

    async def migrations(self) -> list[Migration]:
        """Every numbered change of the schema, in order, and whether it is there; changes nothing, needs no `open`."""
        ...

    def for_event_loop(self) -> Store:
        """A handle for another thread's event loop; `self` where the store does not mind."""
        ...
