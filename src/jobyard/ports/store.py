"""The store port: the job, admin, schedule, record and workflow ports together.

Rules for all methods:
- a method is atomic: it takes effect completely or, when it raises, not at all;
- the store's clock decides what is due and what has expired, never the caller's;
- before a method reads the line of a queue, delayed jobs that are due join it, ordered by (run_at, sequence);
- methods may be called from any thread that runs an event loop, on the handle that `for_event_loop()` returned there;
- cancelling the caller never leaves a method half done: it may still take effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from jobyard.ports.admin_store import AdminStore
from jobyard.ports.job_store import JobStore
from jobyard.ports.record_store import RecordStore
from jobyard.ports.schedule_store import ScheduleStore
from jobyard.ports.workflow_store import WorkflowStore


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
    text: str  # the statements, for an operator who runs them by hand
    applied: bool


class Store(JobStore, AdminStore, ScheduleStore, RecordStore, WorkflowStore, Protocol):
    url: str  # as configured, without secrets
    has_transactions: bool  # whether insert and settle can join the caller's own transaction
    is_remote: bool  # another process does the work: a second exchange in flight keeps it busy

    async def open(self) -> None:
        """Connect and bring the schema up to date; safe from several processes at once, and twice."""

    async def close(self) -> None:
        """Finish pending calls, then disconnect; safe twice."""

    async def diagnose(self) -> list[Finding]:
        """Check the engine: reachable, writable, durable, with enough space.

        Raises StoreError only when the engine is not reachable at all.
        """

    async def risks(self) -> list[Finding]:
        """The settings of the engine with which it may lose jobs; cheap, because every worker and server asks."""

    async def migrations(self) -> list[Migration]:
        """Every schema migration, in order, and whether it is applied. Changes nothing and needs no `open`.

        Raises NewerSchema when a newer jobyard has migrated the schema.
        """

    def shards(self) -> Sequence[Store]:
        """The stores over which the queues are spread, each with a clock of its own; empty if this store is one."""

    def for_event_loop(self) -> Store:
        """A handle for the event loop of the current thread; `self` if the store works from any loop."""
