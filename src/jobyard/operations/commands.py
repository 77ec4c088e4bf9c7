"""Commands of an operator: limits, pauses, and changes to one job, to many, or to all that match."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

from jobyard.domain import options
from jobyard.domain.job import Job, State
from jobyard.errors import BadOption, JobNotFound, NotPossible, did_you_mean
from jobyard.operations.queries import JobReader, Queries
from jobyard.ports.admin_store import Action, Changed, Filter, QueueInfo

# Ids per change: a bulk action is many short transactions, so that workers can claim in between.
CHANGE_AT_ONCE = 500
DEAD = (State.FAILED, State.TIMEOUT)
RETRIED = (*DEAD, State.CANCELLED)


class JobWriter(JobReader, Protocol):
    """The verbs that commands need: a store has them, and a client of a server."""

    async def change(
        self, action: Action, job_ids: Sequence[str], *, reason: str = "", priority: int = 0
    ) -> Changed: ...
    async def set_paused(self, queue: str, group: str | None, paused: bool) -> None: ...
    async def set_limit(self, queue: str, group: str, limit: int | None) -> None: ...


class Commands:
    def __init__(self, writer: JobWriter, deliver_ended: Callable[[], Awaitable[int]] | None = None) -> None:
        """`deliver_ended` delivers ends of jobs and returns how many; a client of a server has none."""
        self._writer = writer
        self._deliver_ended = deliver_ended
        self._queries = Queries(writer)

    async def set_limit(self, queue: str, group: str, limit: int) -> None:
        options.check_name("queue", queue)
        await self._writer.set_limit(queue, options.check_name("group", group), options.check_limit(limit))

    async def remove_limit(self, queue: str, group: str) -> None:
        await self._writer.set_limit(options.check_name("queue", queue), options.check_name("group", group), None)

    async def pause(self, queue: str, group: str | None = None, *, paused: bool = True) -> None:
        options.check_name("queue", queue)
        if group is not None:
            options.check_name("group", group)
        await self._writer.set_paused(queue, group, paused)

    async def change_one(self, action: Action, job_id: str, *, reason: str = "", priority: int = 0) -> None:
        """Change one job. Raises JobNotFound, or NotPossible with the reason."""
        changed = await self.change(action, [job_id], reason=reason, priority=priority)
        if changed.changed:
            return
        job = await self._writer.get(job_id)
        if job is None:
            raise JobNotFound.of(job_id)
        raise NotPossible(await self.why_unchanged(action, job))

    async def why_unchanged(self, action: Action, job: Job) -> str:
        """Why the action left this job unchanged."""
        if action is Action.RETRY and job.state in RETRIED and job.unique_key is not None:
            held = Filter(queue=job.queue, unique_key=job.unique_key, states=(State.PENDING, State.RUNNING))
            holders = (await self._writer.find(held, 1)).jobs
            which = f" ({holders[0].id})" if holders else ""
            return f"Cannot retry job {job.id}: another active job{which} holds its unique key {job.unique_key}."
        if action is Action.DELETE and job.is_workflow and job.state is State.PENDING:
            return f"Cannot delete job {job.id}: this workflow has begun. Cancel it first."
        if action is Action.DELETE and job.is_workflow and job.state in RETRIED:
            return f"Cannot delete job {job.id}: its child jobs are not notified yet. Try again in a moment."
        if action is Action.RUN_NOW:
            reason = "not delayed" if job.state is State.PENDING else job.state
            return f"Cannot run job {job.id} now: it is {reason}."
        return f"Cannot {action.replace('_', ' ')} job {job.id}: it is {job.state}."

    async def change(self, action: Action, job_ids: Sequence[str], *, reason: str = "", priority: int = 0) -> Changed:
        if action is Action.PRIORITISE:
            options.check_integer("priority", priority, -options.MAX_PRIORITY, options.MAX_PRIORITY)
        reason = options.as_reason(reason)
        changed: list[str] = []
        unchanged: list[str] = []
        for start in range(0, len(job_ids), CHANGE_AT_ONCE):
            some = job_ids[start : start + CHANGE_AT_ONCE]
            answer = await self._writer.change(action, some, reason=reason, priority=priority)
            if action is Action.DELETE and await self._deliver_ends(answer.unchanged):
                again = await self._writer.change(action, answer.unchanged, reason=reason, priority=priority)
                answer = Changed((*answer.changed, *again.changed), again.unchanged)
            changed += answer.changed
            unchanged += answer.unchanged
        return Changed(tuple(changed), tuple(unchanged))

    async def _deliver_ends(self, unchanged: Sequence[str]) -> bool:
        """Notify child jobs of the ends of these workflows, which cannot be deleted before. A server does so itself."""
        if not unchanged or self._deliver_ended is None:
            return False
        jobs = (await self._writer.find(Filter(ids=tuple(unchanged)), len(unchanged))).jobs
        if not any(job.is_workflow and job.state in RETRIED for job in jobs):
            return False
        while await self._deliver_ended():
            pass
        return True

    async def change_matching(
        self, action: Action, where: Filter, *, reason: str = "", priority: int = 0
    ) -> AsyncIterator[Changed]:
        """Change all jobs that match, and yield each batch, so that the caller can show progress."""
        batch: list[str] = []
        async for job in self._queries.walk(where):
            batch.append(job.id)
            if len(batch) == CHANGE_AT_ONCE:
                yield await self.change(action, batch, reason=reason, priority=priority)
                batch = []
        if batch:
            yield await self.change(action, batch, reason=reason, priority=priority)

    async def drain(self, queue: str) -> int:
        """Delete all waiting jobs of a queue; running jobs continue."""
        removed = 0
        async for changed in self.change_matching(Action.DELETE, Filter(queue=queue, states=(State.PENDING,))):
            removed += len(changed.changed)
        return removed


def found_queue(name: str, queues: Sequence[QueueInfo]) -> QueueInfo:
    """The queue of this name. Raises BadOption for a queue that does not exist."""
    known = {queue.name: queue for queue in queues}
    if name not in known:
        raise BadOption(f'Queue "{name}" not found.{did_you_mean(name, known)}', option="queue")
    return known[name]
