"""Child jobs of a workflow: one or many are started, and waited for without a slot."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

import msgspec

from jobyard.domain.history import NO_RESULT, ChildEnd, Wake, failed_scope
from jobyard.domain.job import NewJob, Progress
from jobyard.errors import ChildFailed
from jobyard.executors.python.prepared_job import PreparedJob
from jobyard.executors.workflow.child_ends import DeliveredEnds, bucket_of, failure_of, result_of
from jobyard.executors.workflow.child_inserter import ChildInserter
from jobyard.executors.workflow.journal import Operation, child_end
from jobyard.executors.workflow.records import (
    EPOCH_KEY,
    StoredRecord,
    WorkflowRecord,
    child_id,
    map_scope,
    operation_of,
    part,
    registered_children,
    run_scope,
)
from jobyard.executors.workflow.relay import PAGE, cancel_unfinished
from jobyard.executors.workflow.run import Wait, WorkflowRun

R = TypeVar("R")

# Children inserted in one call.
WINDOW = 500
# How often a job is read that holds the unique key of a child.
FOLLOW_SECONDS = 2.0


class ChildJobs:
    def __init__(self, run: WorkflowRun) -> None:
        self._run = run
        self._journal = run.journal
        self._store = run.store
        self._lease = run.attempt.lease
        self.ends = DeliveredEnds(run)
        self._inserter = ChildInserter(run, self.ends)
        self._open: set[str] = set()  # operations whose children are not known to have ended

    # One child

    async def run_one(self, operation: Operation, job: PreparedJob[R]) -> R:
        """Start the child if it was not started, and return its result once it has ended."""
        self._journal.begin(operation.key)
        key, epoch = operation.key, self._journal.epoch
        scope, inserted = run_scope(epoch), part(key, "inserted")
        self._open.add(key)
        if operation.stored is None:
            await self._run.require_going_on(is_new=True)
            self._inserter.require_depth()
            with self._run.working():
                await self._journal.record(key, _record(operation))
        marker = self._journal.entries.get(inserted)
        with self._run.working():
            end = await self._journal.run_end(key) if operation.stored is not None else None
        if end is None and marker is None:
            await self._run.require_going_on()
            new_job = self._inserter.child(job, scope, key, child_id(self._lease.job_id, epoch, key))
            with self._run.working():
                holder, end = await self._insert_and_wait(new_job, is_new=operation.stored is None)
            if end is not None:
                await self._journal.add_run_end(key, end)
            else:
                marked = WorkflowRecord(name=holder if holder != new_job.id else "")
                # Without the marker, an attempt that finds no end inserts the child again, which changes nothing.
                self._journal.note(inserted, marked, is_optional=not marked.name)
                if marked.name:
                    await self._wait_for_holder(marked.name)
        elif end is None and marker is not None and marker.record.name:
            end = await self._holder_end(marker.record.name)
            if end is None:
                await self._wait_for_holder(marker.record.name)
        if end is None:
            known = len(await self._journal.run_ends())
            await self._run.block(Wait(f"job {job.new_job.kind}", Wake(scope, known + 1)))
        self._open.discard(key)
        result: R = result_of(end, job.handler)
        return result

    async def _insert_and_wait(self, job: NewJob, *, is_new: bool) -> tuple[str, ChildEnd | None]:
        """Insert a child; its id or that of the holder of its unique key, and its end if that comes at once."""
        ends, is_expected = self._run.attempt.child_ends, False
        if ends is not None and is_new and job.unique is None and self._run.is_function():
            is_expected = not job.delay_seconds and job.run_at is None and ends.expect(job.id, job.kind)
        try:
            [holder] = await self._inserter.insert([job], run_scope(self._journal.epoch), is_new=is_new)
            ended = await ends.wait(job.id, job.kind) if ends is not None and is_expected else None
        finally:
            if ends is not None and is_expected:
                ends.forget(job.id)
        if ended is None:
            return holder, None
        result = NO_RESULT if ended.result is None else msgspec.Raw(ended.result)
        return holder, ChildEnd(job_id=ended.job_id, state=ended.state, result=result, reason=ended.reason)

    async def _wait_for_holder(self, holder: str) -> None:
        with self._run.working():
            until = await self._journal.now() + int(FOLLOW_SECONDS * 1000)
        await self._run.block(Wait(f"job {holder}", until=until))

    async def _holder_end(self, holder: str) -> ChildEnd | None:
        """The end of the job that held the child's unique key."""
        with self._run.working():
            job = await self._store.get(holder)
        if job is None:
            return ChildEnd(job_id=holder)
        if not job.state.is_final:
            return None
        return ChildEnd(job_id=holder, state=job.state, result=job.result or NO_RESULT, reason=job.reason)

    # Many children

    async def run_many(
        self,
        operation: Operation,
        items: Iterator[Any],
        prepare: Callable[[Any], PreparedJob[Any]],
        at_most: int | None,
        *,
        raises: bool,
    ) -> int:
        """Start all children, at most `at_most` at a time, and return their number once all have ended."""
        self._journal.begin(operation.key)
        key, epoch = operation.key, self._journal.epoch
        scope = map_scope(epoch, key)
        finished = self._journal.entries.get(part(key, "ended"))
        if finished is not None:
            if finished.record.error is not None:
                raise ChildFailed(finished.record.error.message, finished.record.error.type)
            return finished.record.count or 0
        self._open.add(key)
        if operation.stored is None:
            await self._run.require_going_on(is_new=True)
            self._inserter.require_depth()
            with self._run.working():
                await self._journal.record(key, _record(operation))
        windows = self._windows(key)
        started = sum(each.record.count or 0 for each in windows)
        await self._finish_last_window(key, windows, items, prepare, scope)
        seen, seen_number = (windows[-1].record.seen or 0, windows[-1].record.seen_number or 0) if windows else (0, 0)
        most = at_most or WINDOW * 1_000_000
        while True:
            with self._run.working():
                seen, seen_number = await self._see_ends(key, started, seen, seen_number, raises=raises)
            room = most - (started - seen)
            if room < max(1, most // 2):
                await self._run.require_going_on()
                await self._wait_for_ends(scope, started - most // 2, started - seen, raises=raises)
            window = [prepare(item) for item in itertools.islice(items, min(room, WINDOW))]
            if not window:
                break
            await self._run.require_going_on()
            with self._run.working():
                await self._start_window(key, window, started, seen, seen_number, scope)
            started += len(window)
        if seen < started:
            await self._run.require_going_on()
            await self._wait_for_ends(scope, started, started - seen, raises=raises)
        with self._run.working():
            await self._journal.record(part(key, "ended"), WorkflowRecord(count=started))
        self._open.discard(key)
        return started

    async def _wait_for_ends(self, scope: str, count: int, unfinished: int, *, raises: bool) -> NoReturn:
        wakes = [Wake(scope, count), *([Wake(failed_scope(scope), 1)] if raises else [])]
        await self._run.block(*(Wait(f"{unfinished} child jobs", wake) for wake in wakes))

    def _windows(self, key: str) -> list[StoredRecord]:
        found = ((int(name.rpartition("window")[2]), each) for name, each in self._parts(key, "window"))
        return [each for _, each in sorted(found, key=lambda pair: pair[0])]

    def _parts(self, key: str, name: str) -> Iterator[tuple[str, StoredRecord]]:
        prefix = part(key, name)
        return ((each, stored) for each, stored in self._journal.entries.items() if each.startswith(prefix))

    async def _start_window(
        self, key: str, jobs: list[PreparedJob[Any]], first: int, seen: int, seen_number: int, scope: str
    ) -> None:
        record = WorkflowRecord(first=first, count=len(jobs), seen=seen, seen_number=seen_number)
        await self._journal.record(part(key, f"window{first}"), record)
        await self._inserter.insert(self._inserter.children(key, jobs, first, scope), scope, is_new=True)
        self._journal.note(part(key, f"inserted{first}"), WorkflowRecord())

    async def _finish_last_window(
        self,
        key: str,
        windows: list[StoredRecord],
        items: Iterator[Any],
        prepare: Callable[[Any], PreparedJob[Any]],
        scope: str,
    ) -> None:
        """Skip the items of earlier attempts; insert those of a window that one of them may not have inserted."""
        last = windows[-1].record if windows else WorkflowRecord(first=0, count=0)
        first = last.first or 0
        for _ in itertools.islice(items, first):
            pass
        window = list(itertools.islice(items, last.count or 0))
        if window and part(key, f"inserted{first}") not in self._journal.entries:
            await self._run.require_going_on()
            with self._run.working():
                jobs = [prepare(item) for item in window]
                await self._inserter.insert(self._inserter.children(key, jobs, first, scope), scope, is_new=False)
            self._journal.note(part(key, f"inserted{first}"), WorkflowRecord())

    async def _see_ends(self, key: str, total: int, seen: int, seen_number: int, *, raises: bool) -> tuple[int, int]:
        """Count the ends that were delivered since; with `raises` the first failure ends all others."""
        scope = map_scope(self._journal.epoch, key)
        while page := await self._store.history(self._lease.job_id, scope, after=seen_number, limit=PAGE):
            seen, seen_number = seen + len(page), page[-1].number
            if raises:
                for entry in page:
                    end = child_end(entry)
                    if (failure := failure_of(end)) is not None:
                        await self._give_up(key, total, failure)
            if len(page) < PAGE:
                break
        return seen, seen_number

    async def _give_up(self, key: str, total: int, failure: ChildFailed) -> None:
        ids = tuple(child_id(self._lease.job_id, self._journal.epoch, key, index) for index in range(total))
        await cancel_unfinished(self._store, ids, f"child job {failure.job_id} of the same map failed")
        error = {"type": failure.job_id, "message": str(failure)}
        await self._journal.record(
            part(key, "ended"), msgspec.convert({"count": total, "error": error}, WorkflowRecord)
        )
        self._open.discard(key)
        raise failure

    # Batches

    async def collect(self, operation: Operation, total: int) -> dict[str, int]:
        """How the children of a batch ended, once all have; reports progress on the way."""
        self._journal.begin(operation.key)
        if operation.stored is None:
            await self._run.require_going_on(is_new=True)
            with self._run.working():
                await self._journal.record(operation.key, _record(operation))
        ended = self._journal.entries.get(part(operation.key, "ended"))
        if ended is None:
            window = part(operation.key, "window0")
            if window not in self._journal.entries:
                self._journal.note(window, WorkflowRecord(first=0, count=total))
            await self._run.require_going_on()
            scope = map_scope(self._journal.epoch, operation.key)
            with self._run.working():
                counts = Counter([bucket_of(child_end(each)) for each in await self.ends.all(scope)])
                seen = counts.total()
                percent = 100.0 * seen / total if total else 100.0
                await self._run.attempt.report(progress=Progress(percent=percent, message=f"{seen} of {total} ended"))
            if seen < total:
                # Woken at each tenth, to report progress.
                await self._run.block(Wait(f"{total - seen} jobs", Wake(scope, min(total, seen + max(1, total // 10)))))
            with self._run.working():
                record = WorkflowRecord(result=msgspec.Raw(msgspec.json.encode(counts)))
                ended = await self._journal.record(part(operation.key, "ended"), record)
        found = msgspec.json.decode(ended.record.result, type=dict[str, int])
        return {name: found.get(name, 0) for name in ("completed", "failed", "cancelled")}

    async def end_open(self) -> list[Wait]:
        """Cancel the children that the function has not waited for; what to wait for until they have ended."""
        if not self._open:
            return []
        job_id, entries = self._lease.job_id, self._journal.entries
        own = {key: stored for key, stored in entries.items() if operation_of(key) in self._open or key == EPOCH_KEY}
        return await self.ends.cancel_all(registered_children(job_id, own), f"its parent {job_id} did not wait for it")


def _record(operation: Operation) -> WorkflowRecord:
    return WorkflowRecord(kind=operation.kind, name=operation.name, position=operation.position)


def preparing(call: Any) -> Callable[[Any], PreparedJob[Any]]:
    make: Callable[[Any], PreparedJob[Any]] = call.call if hasattr(call, "call") else call
    return make
