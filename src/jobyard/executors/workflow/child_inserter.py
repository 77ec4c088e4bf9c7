"""Insert the child jobs of a workflow, each once, however often its attempts begin again."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from jobyard.domain.history import ChildEnd, Delivery
from jobyard.domain.job import NewJob, Parent, State
from jobyard.errors import BadOption, NotPossible, QueueFull
from jobyard.executors.python.prepared_job import PreparedJob
from jobyard.executors.workflow.child_ends import DeliveredEnds
from jobyard.executors.workflow.journal import child_end
from jobyard.executors.workflow.records import MAX_DEPTH, child_id, run_scope
from jobyard.executors.workflow.relay import CHUNK, deliver_ended, find_jobs
from jobyard.executors.workflow.run import WorkflowRun
from jobyard.ports.admin_store import Action

# A queue that is full is tried again after these seconds; then the attempt fails and is retried as a whole.
FULL_RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0)
# A child that another attempt may have inserted, run and removed is held back until that is known.
HELD_BACK_SECONDS = 3600.0


class ChildInserter:
    def __init__(self, run: WorkflowRun, ends: DeliveredEnds) -> None:
        self._journal = run.journal
        self._store = run.store
        self._lease = run.attempt.lease
        self._ends = ends

    def require_depth(self) -> None:
        parent = self._lease.parent
        if parent is not None and parent.depth >= MAX_DEPTH:
            raise NotPossible(
                f"Cannot start a child job: workflows can be at most {MAX_DEPTH} levels deep, and this one is. "
                "Use a loop, or ctx.continue_as_new(…), in place of a workflow that starts itself."
            )

    def children(self, key: str, jobs: list[PreparedJob[Any]], first: int, scope: str) -> list[NewJob]:
        job_id, epoch = self._lease.job_id, self._journal.epoch
        return [
            self.child(job, scope, str(index), child_id(job_id, epoch, key, index))
            for index, job in enumerate(jobs, start=first)
        ]

    def child(self, job: PreparedJob[Any], scope: str, key: str, own_id: str) -> NewJob:
        if not isinstance(job, PreparedJob):
            raise BadOption(f"Cannot start {job!r} as a child job. Write ctx.run(task.call(…)).")
        if job.transaction is not None:
            raise BadOption("A child job cannot be inserted in a transaction.", option="transaction")
        parent = self._lease.parent
        depth = 1 if parent is None else parent.depth + 1
        return msgspec.structs.replace(job.new_job, id=own_id, parent=Parent(self._lease.job_id, scope, key, depth))

    async def insert(self, jobs: list[NewJob], scope: str, *, is_new: bool) -> list[str]:
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
        ended = {child_end(each).job_id for each in await self._ends.all(scope)}
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
