"""Bulk operations: an action on all jobs that match, carried out step by step, with its progress in the store.

The server that started an operation carries it out. If that server dies, another one continues where it stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Literal
from uuid import UUID

import msgspec

from jobyard.api.schemas.jobs import JobFilter
from jobyard.api.schemas.operations import BulkOperationView
from jobyard.domain.access import Principal
from jobyard.domain.ids import new_id
from jobyard.domain.instant import Instant, rfc3339
from jobyard.live_events.poller import jobs_by_id
from jobyard.operations.local import LocalOperations
from jobyard.ports.admin_store import Action, Changed
from jobyard.ports.store import Store
from jobyard.server.authorization import can_see, visible_filters
from jobyard.server.visible_jobs import MAX_STEP, find_visible

log = logging.getLogger("jobyard.http")

COLLECTION = "jobyard.operations"
KEPT_SECONDS = 86_400.0
MAX_LISTED = 200
# An operation whose record was not written for this long has lost its server.
TAKEOVER_MS = 30_000
CHECK_SECONDS = 10.0  # between two looks for such operations: each reads the whole list
STEP = MAX_STEP
# Progress is written at most this often.
WRITE_SECONDS = 0.5


class OperationRecord(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    action: Action
    principal: Principal
    filter: JobFilter | None
    ids: tuple[str, ...] | None
    reason: str
    priority: int
    matching: int
    matching_capped: bool
    created_at: Instant
    updated_at: Instant
    state: Literal["running", "done", "cancelled", "failed"] = "running"
    cursor: str | None = None
    examined: int = 0
    changed: int = 0
    unchanged: int = 0
    finished_at: Instant | None = None
    error: str | None = None

    def view(self) -> BulkOperationView:
        return BulkOperationView(
            id=self.id,
            action=self.action,
            filter=self.filter,
            ids_given=None if self.ids is None else len(self.ids),
            state=self.state,
            matching=self.matching,
            matching_capped=self.matching_capped,
            examined=self.examined,
            changed=self.changed,
            unchanged=self.unchanged,
            created_by=self.principal.name,
            created_at=rfc3339(self.created_at),
            updated_at=rfc3339(self.updated_at),
            finished_at=None if self.finished_at is None else rfc3339(self.finished_at),
            error=self.error,
        )


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(OperationRecord).decode
_replace = msgspec.structs.replace


class BulkOperations:
    def __init__(self, store: Store, operations: LocalOperations, changed_many: Callable[[], None]) -> None:
        self._store = store
        self._operations = operations
        self._changed_many = changed_many
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._watcher: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Continue operations whose server is gone, now and later."""
        if self._watcher is None:
            self._watcher = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        tasks = [*self._tasks.values(), *([] if self._watcher is None else [self._watcher])]
        self._watcher = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def begin(self, principal: Principal, **fields: Any) -> OperationRecord:
        now = await self._store.now()
        record = OperationRecord(id=new_id(), principal=principal, created_at=now, updated_at=now, **fields)
        version = await self._put(record, 0)
        assert version is not None
        await self._operations.as_principal(principal).record(
            "operation.start", record.id, what=str(record.action), filter=msgspec.to_builtins(record.filter)
        )
        self._run(record, version)
        return record

    async def get(self, operation_id: str) -> OperationRecord | None:
        found = await self._store.fetch(COLLECTION, operation_id)
        return None if found is None else _decode(found.data)

    async def newest(self) -> list[OperationRecord]:
        found = [_decode(each.data) for each in await self._store.fetch_all(COLLECTION, MAX_LISTED)]
        return sorted(found, key=lambda record: -record.created_at)

    async def cancel(self, principal: Principal, operation_id: str) -> OperationRecord | None:
        """End it after its present step; what it has changed stays changed."""
        while (found := await self._store.fetch(COLLECTION, operation_id)) is not None:
            record = _decode(found.data)
            if record.state != "running":
                return record
            now = await self._store.now()
            ended = _replace(record, state="cancelled", finished_at=now, updated_at=now)
            if await self._put(ended, found.version) is not None:
                await self._operations.as_principal(principal).record("operation.cancel", operation_id)
                return ended
        return None

    async def _put(self, record: OperationRecord, expect: int) -> int | None:
        return await self._store.put(COLLECTION, record.id, _encode(record), expect=expect, expire_seconds=KEPT_SECONDS)

    async def _watch(self) -> None:
        while True:
            with contextlib.suppress(Exception):
                await self.take_over()
            await asyncio.sleep(CHECK_SECONDS)

    async def take_over(self) -> None:
        now = await self._store.now()
        for found in await self._store.fetch_all(COLLECTION, MAX_LISTED):
            record = _decode(found.data)
            if record.state == "running" and record.updated_at < now - TAKEOVER_MS and record.id not in self._tasks:
                taken = _replace(record, updated_at=now)
                version = await self._put(taken, found.version)
                if version is not None:
                    self._run(taken, version)

    def _run(self, record: OperationRecord, version: int) -> None:
        task = asyncio.get_running_loop().create_task(self._carry_out(record, version))
        self._tasks[record.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(record.id, None))

    async def _carry_out(self, record: OperationRecord, version: int) -> None:
        loop = asyncio.get_running_loop()
        written = loop.time()
        while True:
            try:
                record, is_over = await self._step(record)
            except Exception as error:
                log.exception("operation %s failed", record.id)
                record, is_over = _replace(record, state="failed", error=f"{type(error).__name__}: {error}"[:500]), True
            if not is_over and loop.time() - written < WRITE_SECONDS:
                continue
            now = await self._store.now()
            record = _replace(record, updated_at=now, finished_at=now if is_over else None)
            next_version = await self._put(record, version)
            if next_version is None:  # cancelled, or another server continues it
                await self._keep_counts(record)
                break
            version, written = next_version, loop.time()
            if is_over:
                break
        self._changed_many()
        where = msgspec.to_builtins(record.filter)
        operations = self._operations.as_principal(record.principal)
        await operations.record_bulk(
            record.action, record.changed, record.reason, where=where, ids=record.ids, priority=record.priority
        )

    async def _keep_counts(self, record: OperationRecord) -> None:
        """A cancelled operation shows what it had changed by then."""
        found = await self._store.fetch(COLLECTION, record.id)
        if found is not None and (kept := _decode(found.data)).state == "cancelled":
            counts = {name: getattr(record, name) for name in ("examined", "changed", "unchanged")}
            await self._put(_replace(kept, **counts), found.version)

    async def _step(self, record: OperationRecord) -> tuple[OperationRecord, bool]:
        if record.ids is not None:
            start = int(record.cursor or 0)
            some = record.ids[start : start + STEP]
            jobs = await jobs_by_id(self._store, some)
            ids = [job_id for job_id in some if job_id in jobs and can_see(record.principal, jobs[job_id])]
            cursor = str(start + STEP) if start + STEP < len(record.ids) else None
            seen = len(some)
        else:
            filters, is_visible = visible_filters(record.principal, record.filter or JobFilter())
            page = await find_visible(self._store, filters, STEP, record.cursor)
            ids, cursor, seen = [job.id for job in page.jobs if is_visible(job)], page.cursor, len(page.jobs)
        done = Changed((), ())
        if ids:
            done = await self._operations.commands.change(
                record.action, ids, reason=record.reason, priority=record.priority
            )
        is_over = cursor is None
        return _replace(
            record,
            cursor=cursor,
            examined=record.examined + seen,
            changed=record.changed + len(done.changed),
            unchanged=record.unchanged + len(done.unchanged),
            state="done" if is_over else "running",
        ), is_over


def is_operation_id(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False
