"""What operators do: limits, pauses, and changes to jobs, one or all that match."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from jobyard.domain.job import Job, QueueSettings, State
from jobyard.errors import BadOption, JobNotFound, NotPossible, did_you_mean
from jobyard.operations import job_options as options
from jobyard.operations import worker_control as control
from jobyard.operations.queries import Read
from jobyard.ports.admin_store import Action, Changed, Filter, QueueInfo
from jobyard.ports.store import Store

# Ids per change: a bulk action is many short transactions, not one that stops the world.
CHANGE_AT_ONCE = 500
DEAD = (State.FAILED, State.TIMEOUT)
RETRIED = (*DEAD, State.CANCELLED)


class Operate:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._read = Read(store)

    async def configure(self, queue: str, settings: QueueSettings) -> None:
        await self._store.configure(options.name("queue", queue), settings)

    async def set_limit(self, queue: str, group: str, limit: int) -> None:
        await self._store.set_limit(options.name("queue", queue), options.name("group", group), options.limit(limit))

    async def remove_limit(self, queue: str, group: str) -> None:
        await self._store.set_limit(options.name("queue", queue), options.name("group", group), None)

    async def pause(self, queue: str, group: str | None = None, *, paused: bool = True) -> None:
        options.name("queue", queue)
        if group is not None:
            options.name("group", group)
        await self._store.set_paused(queue, group, paused)

    async def one(self, action: Action, job_id: str, *, reason: str = "", priority: int = 0) -> None:
        """Change one job, or say why not."""
        changed = await self.many(action, [job_id], reason=reason, priority=priority)
        if changed.changed:
            return
        job = await self._store.get(job_id)
        if job is None:
            raise JobNotFound.of(job_id)
        raise NotPossible(await self.why_not(action, job))

    async def why_not(self, action: Action, job: Job) -> str:
        """Why the action left this job unchanged."""
        if action is Action.RETRY and job.state in RETRIED and job.unique_key is not None:
            held = Filter(queue=job.queue, unique_key=job.unique_key, states=(State.PENDING, State.RUNNING))
            holders = (await self._store.find(held, 1)).jobs
            which = f" ({holders[0].id})" if holders else ""
            return (
                f"Job {job.id} is {job.state} and cannot be retried now: "
                f"its unique key {job.unique_key} is held by another active job{which}."
            )
        return f"Job {job.id} is {job.state}; {action} does not fit."

    async def many(self, action: Action, job_ids: Sequence[str], *, reason: str = "", priority: int = 0) -> Changed:
        if action is Action.PRIORITISE:
            options.whole("priority", priority, -options.MAX_PRIORITY, options.MAX_PRIORITY)
        reason = options.reason(reason)
        changed: list[str] = []
        unchanged: list[str] = []
        for start in range(0, len(job_ids), CHANGE_AT_ONCE):
            some = job_ids[start : start + CHANGE_AT_ONCE]
            answer = await self._store.change(action, some, reason=reason, priority=priority)
            changed += answer.changed
            unchanged += answer.unchanged
        return Changed(tuple(changed), tuple(unchanged))

    async def matching(
        self, action: Action, where: Filter, *, reason: str = "", priority: int = 0
    ) -> AsyncIterator[Changed]:
        """Change all jobs that match, batch by batch, so that a caller can show how far it is."""
        batch: list[str] = []
        async for job in self._read.walk(where):
            batch.append(job.id)
            if len(batch) == CHANGE_AT_ONCE:
                yield await self.many(action, batch, reason=reason, priority=priority)
                batch = []
        if batch:
            yield await self.many(action, batch, reason=reason, priority=priority)

    async def drain(self, queue: str) -> int:
        """Delete all waiting jobs of a queue; running ones go on."""
        removed = 0
        async for changed in self.matching(Action.DELETE, Filter(queue=queue, states=(State.PENDING,))):
            removed += len(changed.changed)
        return removed

    async def control_worker(self, worker_id: str, what: str) -> None:
        """Tell a worker to be "quiet" (it takes no more jobs) or to "stop" (as SIGTERM does)."""
        if what not in list(control.Control):
            raise BadOption(f'A worker can be told to be "quiet" or to "stop", not "{what}".')
        await control.tell(self._store, worker_id, control.Control(what))

    async def known_queue(self, name: str) -> QueueInfo:
        known = {queue.name: queue for queue in await self._store.queues()}
        if name not in known:
            raise BadOption(f"There is no queue {name}.{did_you_mean(name, known)}")
        return known[name]
