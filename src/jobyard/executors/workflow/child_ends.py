"""Ends of the child jobs of a workflow: read in the order of delivery, decoded, and awaited after a cancel."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from typing import Any, Generic, TypeVar

import msgspec

from jobyard.domain.history import ChildEnd, Delivery, Wake
from jobyard.domain.job import State
from jobyard.errors import ChildFailed
from jobyard.executors.python.prepared_job import ResultDecoder
from jobyard.executors.workflow.journal import Operation, child_end
from jobyard.executors.workflow.records import MAX_RESULT_BYTES, Children, map_scope
from jobyard.executors.workflow.relay import CHUNK, PAGE, cancel_unfinished, deliver_ended, find_jobs
from jobyard.executors.workflow.run import Wait, WorkflowRun

R = TypeVar("R")

# Children between the failed one and this one: with all of them in the reason, its end would be cut off.
_ABOVE_LAST = re.compile(r"^(?:(?:… )?Child job \S+ ended [A-Z]+: )+(?:… )?(?=Child job \S+ ended [A-Z]+: )")


class DeliveredEnds:
    def __init__(self, run: WorkflowRun) -> None:
        self._run = run
        self._journal = run.journal
        self._store = run.store
        self._lease = run.attempt.lease

    async def all(self, scope: str) -> list[Any]:
        entries: list[Any] = []
        after = 0
        while page := await self._store.history(self._lease.job_id, scope, after=after, limit=PAGE):
            entries += page
            after = page[-1].number
        return entries

    async def of_map(self, operation: Operation) -> AsyncIterator[tuple[int, ChildEnd]]:
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

    async def cancel_all(self, registered: Iterable[Children], reason: str) -> list[Wait]:
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
            ended = {entry.key for entry in await self.all(scope)}
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


def bucket_of(end: ChildEnd) -> str:
    match end.state:
        case State.COMPLETED:
            return "completed"
        case State.FAILED | State.TIMEOUT:
            return "failed"
    return "cancelled"


def failure_of(end: ChildEnd) -> ChildFailed | None:
    """Why the parent cannot have a result of the child; None if it can.

    An ordinary job may have a larger result than a workflow takes, and may have been inserted as one.
    """
    if end.state is State.COMPLETED:
        size = len(bytes(end.result))
        if size <= MAX_RESULT_BYTES:
            return None
        message = (
            f"The result of child job {end.job_id} is {size:,} bytes of JSON; the limit within a workflow is "
            f"{MAX_RESULT_BYTES:,}. Store large data elsewhere and return a reference."
        )
        return ChildFailed(message, end.job_id)
    if end.state is None:
        return ChildFailed(f"Child job {end.job_id} was not run: {end.reason or 'it was deleted'}.", end.job_id)
    reason = f": {_ABOVE_LAST.sub('… ', end.reason)}" if end.reason else ""
    return ChildFailed(f"Child job {end.job_id} ended {end.state}{reason}", end.job_id)


def result_of(end: ChildEnd, handler: ResultDecoder) -> Any:
    if (failure := failure_of(end)) is not None:
        raise failure
    return handler.decode_result(bytes(end.result))
