"""Child jobs of a workflow: insert each once, wait for their ends without a slot, collect the results."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator
from typing import Any, Generic, NoReturn, TypeVar

import msgspec

from jobyard.domain.history import NO_RESULT, ChildEnd, Delivery, Wake, failed_scope
from jobyard.domain.job import NewJob, Parent, Progress, State
from jobyard.errors import BadOption, ChildFailed, NotPossible, QueueFull
from jobyard.executors.python.prepared_job import PreparedJob, ResultDecoder
from jobyard.executors.workflow.journal import Operation, child_end
from jobyard.executors.workflow.records import (
    EPOCH_KEY,
    MAX_DEPTH,
    Children,
    Record,
    StoredRecord,
    child_id,
    map_scope,
    operation_of,
    part,
    registered_children,
    run_scope,
)
from jobyard.executors.workflow.relay import CHUNK, PAGE, cancel_unfinished, deliver_ended, find_jobs
from jobyard.executors.workflow.run import Wait, WorkflowRun
from jobyard.ports.admin_store import Action

R = TypeVar("R")

# Children inserted in one call.
WINDOW = 500
# A queue that is full is tried again after these seconds; then the attempt fails and is retried as a whole.
FULL_RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0)
# A child that another attempt may have inserted, run and removed is held back until that is known.
HELD_BACK_SECONDS = 3600.0
# How often a job is read that holds the unique key of a child.
FOLLOW_SECONDS = 2.0


class ChildJobs:
    def __init__(self, run: WorkflowRun) -> None:
        self._run = run
        self._journal = run.journal
        self._store = run.store
        self._lease = run.attempt.lease
        self._open: set[str] = set()  # operations whose children are not known to have ended

    # One child

    async def run_one(self, operation: Operation, job: PreparedJob[R]) -> R:
        """Start the child if it was not started, and return its result once it has ended."""
        key, epoch = operation.key, self._journal.epoch
        scope, inserted = run_scope(epoch), part(key, "inserted")
        self._open.add(key)
        if operation.stored is None:
            await self._run.require_going_on(is_new=True)
            self._require_depth()
            with self._run.working():
                await self._journal.record(key, _record(operation))
        marker = self._journal.entries.get(inserted)
        with self._run.working():
            end = await self._journal.run_end(key) if operation.stored is not None else None
        if end is None and marker is None:
            await self._run.require_going_on()
            new_job = self._child(job, scope, key, child_id(self._lease.job_id, epoch, key))
            with self._run.working():
                holder, end = await self._insert_and_wait(new_job, is_new=operation.stored is None)
            if end is not None:
                await self._journal.add_run_end(key, end)
            else:
                marked = Record(name=holder if holder != new_job.id else "")
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
            [holder] = await self._insert([job], run_scope(self._journal.epoch), is_new=is_new)
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
        """Start all children, at most so many at a time, and return their number once all have ended."""
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
            self._require_depth()
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
            await self._journal.record(part(key, "ended"), Record(count=started))
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
        record = Record(first=first, count=len(jobs), seen=seen, seen_number=seen_number)
        await self._journal.record(part(key, f"window{first}"), record)
        await self._insert(self._children(key, jobs, first, scope), scope, is_new=True)
        self._journal.note(part(key, f"inserted{first}"), Record())

    async def _finish_last_window(
        self,
        key: str,
        windows: list[StoredRecord],
        items: Iterator[Any],
        prepare: Callable[[Any], PreparedJob[Any]],
        scope: str,
    ) -> None:
        """Skip the items of earlier attempts; insert those of a window that one of them may not have inserted."""
        last = windows[-1].record if windows else Record(first=0, count=0)
        first = last.first or 0
        for _ in itertools.islice(items, first):
            pass
        window = list(itertools.islice(items, last.count or 0))
        if window and part(key, f"inserted{first}") not in self._journal.entries:
            await self._run.require_going_on()
            with self._run.working():
                jobs = [prepare(item) for item in window]
                await self._insert(self._children(key, jobs, first, scope), scope, is_new=False)
            self._journal.note(part(key, f"inserted{first}"), Record())

    async def _see_ends(self, key: str, total: int, seen: int, seen_number: int, *, raises: bool) -> tuple[int, int]:
        """Count the ends that were delivered since; with `raises` the first failure ends all others."""
        scope = map_scope(self._journal.epoch, key)
        while page := await self._store.history(self._lease.job_id, scope, after=seen_number, limit=PAGE):
            seen, seen_number = seen + len(page), page[-1].number
            if raises:
                for entry in page:
                    end = child_end(entry)
                    if end.state is not State.COMPLETED:
                        await self._give_up(key, total, end)
            if len(page) < PAGE:
                break
        return seen, seen_number

    async def _give_up(self, key: str, total: int, end: ChildEnd) -> None:
        failure = failure_of(end)
        ids = tuple(child_id(self._lease.job_id, self._journal.epoch, key, index) for index in range(total))
        await cancel_unfinished(self._store, ids, f"child job {end.job_id} of the same map failed")
        error = {"type": failure.job_id, "message": str(failure)}
        await self._journal.record(part(key, "ended"), msgspec.convert({"count": total, "error": error}, Record))
        self._open.discard(key)
        raise failure

    async def ends(self, operation: Operation) -> AsyncIterator[tuple[int, ChildEnd]]:
        """The ends of a map's children, in the order in which they were delivered, with their indexes."""
        after, scope = 0, map_scope(self._journal.epoch, operation.key)
        while True:
            with self._run.working():
                page = await self._store.history(self._lease.job_id, scope, after=after, limit=PAGE)
            for entry in page:
                yield int(entry.key), child_end(entry)
            if len(page) < PAGE:
                return
            after = page[-1].number

    # Batches

    async def collect(self, operation: Operation, total: int) -> dict[str, int]:
        """How the children of a batch ended, once all have; reports progress on the way."""
        if operation.stored is None:
            await self._run.require_going_on(is_new=True)
            with self._run.working():
                await self._journal.record(operation.key, _record(operation))
        ended = self._journal.entries.get(part(operation.key, "ended"))
        if ended is None:
            window = part(operation.key, "window0")
            if window not in self._journal.entries:
                self._journal.note(window, Record(first=0, count=total))
            await self._run.require_going_on()
            scope = map_scope(self._journal.epoch, operation.key)
            with self._run.working():
                counts = Counter([_bucket(child_end(each)) for each in await self._all_ends(scope)])
                seen = counts.total()
                percent = 100.0 * seen / total if total else 100.0
                await self._run.attempt.report(progress=Progress(percent=percent, message=f"{seen} of {total} ended"))
            if seen < total:
                # Woken at each tenth, to report progress.
                await self._run.block(Wait(f"{total - seen} jobs", Wake(scope, min(total, seen + max(1, total // 10)))))
            with self._run.working():
                record = Record(result=msgspec.Raw(msgspec.json.encode(counts)))
                ended = await self._journal.record(part(operation.key, "ended"), record)
        found = msgspec.json.decode(ended.record.result, type=dict[str, int])
        return {name: found.get(name, 0) for name in ("completed", "failed", "cancelled")}

    # Inserting

    def _require_depth(self) -> None:
        parent = self._lease.parent
        if parent is not None and parent.depth >= MAX_DEPTH:
            raise NotPossible(
                f"Cannot start a child job: {MAX_DEPTH} workflows are above this one already. Does it start itself?"
            )

    def _children(self, key: str, jobs: list[PreparedJob[Any]], first: int, scope: str) -> list[NewJob]:
        job_id, epoch = self._lease.job_id, self._journal.epoch
        return [
            self._child(job, scope, str(index), child_id(job_id, epoch, key, index))
            for index, job in enumerate(jobs, start=first)
        ]

    def _child(self, job: PreparedJob[Any], scope: str, key: str, own_id: str) -> NewJob:
        if not isinstance(job, PreparedJob):
            raise BadOption(f"Cannot start {job!r} as a child job. Write ctx.run(task.call(…)).")
        if job.transaction is not None:
            raise BadOption("A child job cannot be inserted in a transaction.", option="transaction")
        parent = self._lease.parent
        depth = 1 if parent is None else parent.depth + 1
        return msgspec.structs.replace(job.new_job, id=own_id, parent=Parent(self._lease.job_id, scope, key, depth))

    async def _insert(self, jobs: list[NewJob], scope: str, *, is_new: bool) -> list[str]:
        """Insert the children and return their ids, or those of the jobs that hold their unique keys."""
        if not is_new:
            return await self._insert_again(jobs, scope)
        for seconds in FULL_RETRY_SECONDS:
            try:
                return await self._inserted(jobs, scope)
            except QueueFull:
                await asyncio.sleep(seconds)
        return await self._inserted(jobs, scope)

    async def _inserted(self, jobs: list[NewJob], scope: str) -> list[str]:
        if len(jobs) == 1:
            holders = [await self._journal.batches.insert(jobs[0])]
        else:
            holders = [each.id for each in await self._store.insert(jobs)]
        if scope != run_scope(self._journal.epoch):
            await self._end_held_back(jobs, holders)
        return holders

    async def _end_held_back(self, jobs: list[NewJob], holders: list[str]) -> None:
        """Children of a map whose unique key is held end at once, because no end will be delivered for them."""
        ends = [
            (job.parent, ChildEnd(job_id=holder, reason=f"its unique key is held by job {holder}"))
            for job, holder in zip(jobs, holders, strict=True)
            if job.id != holder
        ]
        deliveries = [
            Delivery(parent.job_id, parent.scope, parent.key, msgspec.json.encode(end))
            for parent, end in ends
            if parent is not None
        ]
        if deliveries:
            await self._store.deliver(deliveries)

    async def _insert_again(self, jobs: list[NewJob], scope: str) -> list[str]:
        """Insert children that an earlier attempt may have inserted, and that may have run and been removed since.

        Held back at first: every end that was recorded before is then delivered, and tells which must not run again.
        """
        now = await self._journal.now()
        delayed = {job.id for job in jobs if job.delay_seconds or (job.run_at is not None and job.run_at > now)}
        held = [
            # One with a delay is held back by that.
            job if job.id in delayed else msgspec.structs.replace(job, delay_seconds=HELD_BACK_SECONDS, run_at=None)
            for job in jobs
        ]
        inserted = await self._store.insert(held)
        while await deliver_ended(self._store):
            pass
        ended = {child_end(each).job_id for each in await self._all_ends(scope)}
        created = [each.id for each in inserted if each.created]
        again = [job_id for job_id in created if job_id in ended]
        if again:
            await self._store.change(Action.DELETE, again)
        rest = [job.id for job in jobs if job.id not in ended | delayed]
        await self._store.change(Action.RUN_NOW, [each for each in rest if each in created] + await self._held(rest))
        return [each.id for each in inserted]

    async def _held(self, ids: list[str]) -> list[str]:
        """Those that were held back by an attempt that died; others have a delay of their own, such as a backoff."""
        hold = int(HELD_BACK_SECONDS * 1000)
        found = [
            job for at in range(0, len(ids), CHUNK) for job in await find_jobs(self._store, tuple(ids[at : at + CHUNK]))
        ]
        return [job.id for job in found if job.state is State.PENDING and job.run_at - job.created_at == hold]

    async def _all_ends(self, scope: str) -> list[Any]:
        entries: list[Any] = []
        after = 0
        while page := await self._store.history(self._lease.job_id, scope, after=after, limit=PAGE):
            entries += page
            after = page[-1].number
        return entries

    async def end_open(self) -> list[Wait]:
        """Cancel the children that the function has not waited for; what to wait for until they have ended."""
        if not self._open:
            return []
        job_id, entries = self._lease.job_id, self._journal.entries
        own = {key: stored for key, stored in entries.items() if operation_of(key) in self._open or key == EPOCH_KEY}
        return await self.end_all(registered_children(job_id, own), f"its parent {job_id} did not wait for it")

    async def end_all(self, registered: Iterable[Children], reason: str) -> list[Wait]:
        """Cancel all children; what to wait for until they have ended."""
        groups: dict[str, dict[str, str]] = {}  # key of the end to id, by scope
        for each in registered:
            groups.setdefault(each.scope, {}).update(zip(each.keys, each.ids, strict=True))
        if not groups:
            return []
        while await deliver_ended(self._store):
            pass
        waits: list[Wait] = []
        for scope, children in groups.items():
            ended = {entry.key for entry in await self._all_ends(scope)}
            rest = {key: own_id for key, own_id in children.items() if key not in ended}
            if not rest:
                continue
            found: set[str] = set()
            ids = tuple(rest.values())
            for few in (ids[at : at + CHUNK] for at in range(0, len(ids), CHUNK)):
                found |= {job.id for job in await find_jobs(self._store, few)}
            await self._store.deliver(
                [self._never_inserted(scope, key, own_id) for key, own_id in rest.items() if own_id not in found]
            )
            await cancel_unfinished(self._store, tuple(found), reason)
            if found:
                waits.append(Wait("its child jobs", Wake(scope, len(ended) + len(rest))))
        return waits

    def _never_inserted(self, scope: str, key: str, own_id: str) -> Delivery:
        end = ChildEnd(job_id=own_id, state=State.CANCELLED, reason="it was never inserted")
        return Delivery(self._lease.job_id, scope, key, msgspec.json.encode(end))


class ChildResults(Generic[R]):
    """The results of `ctx.map`: `await` gives all in the order of the items, `async for` each as its job ends."""

    def __init__(
        self,
        start: Callable[[], Awaitable[int]],
        ends: Callable[[], AsyncIterator[tuple[int, ChildEnd]]],
        decode: Callable[[ChildEnd], R],
    ) -> None:
        self._start = start
        self._ends = ends
        self._decode = decode

    def __await__(self) -> Generator[Any, None, list[R]]:
        return self._all().__await__()

    async def _all(self) -> list[R]:
        await self._start()
        found = {index: self._decode(end) async for index, end in self._ends()}
        return [found[index] for index in sorted(found)]

    async def __aiter__(self) -> AsyncIterator[R]:
        await self._start()
        async for _, end in self._ends():
            yield self._decode(end)


def _bucket(end: ChildEnd) -> str:
    match end.state:
        case State.COMPLETED:
            return "completed"
        case State.FAILED | State.TIMEOUT:
            return "failed"
    return "cancelled"


def _record(operation: Operation) -> Record:
    return Record(kind=operation.kind, name=operation.name, position=operation.position)


def failure_of(end: ChildEnd) -> ChildFailed:
    if end.state is None:
        return ChildFailed(f"Child job {end.job_id} was not run: {end.reason or 'it was deleted'}.", end.job_id)
    reason = f": {end.reason}" if end.reason else ""
    return ChildFailed(f"Child job {end.job_id} ended {end.state}{reason}", end.job_id)


def result_of(end: ChildEnd, handler: ResultDecoder) -> Any:
    if end.state is not State.COMPLETED:
        raise failure_of(end)
    return handler.decode_result(bytes(end.result))


def preparing(call: Any) -> Callable[[Any], PreparedJob[Any]]:
    make: Callable[[Any], PreparedJob[Any]] = call.call if hasattr(call, "call") else call
    return make
