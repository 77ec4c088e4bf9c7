"""`Operations` on a store in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from jobyard.api.schemas.schedules import NextTicksResponse, ScheduleView, TickView, next_ticks_response, tick_view
from jobyard.domain.access import OWNER, AuditEntry, Principal, TokenInfo
from jobyard.domain.explain import Explanation, explain
from jobyard.domain.schedule import Schedule
from jobyard.operations.audit import Audit
from jobyard.operations.commands import Commands
from jobyard.operations.job_factory import JobFactory
from jobyard.operations.protocol import SubmittedJob
from jobyard.operations.queries import Queries
from jobyard.operations.schedules import SHORTEST_INTERVAL_SECONDS, Schedules, view_of, views_of
from jobyard.operations.tokens import Tokens
from jobyard.operations.worker_control import control_worker
from jobyard.ports.admin_store import GroupInfo
from jobyard.ports.store import Store

PAGE = 200


class LocalOperations:
    """`make_factory` is called for the first job: it may have to load an app. The default accepts every kind."""

    def __init__(
        self,
        store: Store,
        make_factory: Callable[[], JobFactory] = JobFactory,
        *,
        shortest_interval_seconds: float = SHORTEST_INTERVAL_SECONDS,
        principal: Principal = OWNER,
    ) -> None:
        self._store = store
        self._make_factory = make_factory
        self._principal = principal
        self._schedules = Schedules(store, shortest_interval_seconds)
        self._tokens = Tokens(store)
        self._audit = Audit(store)
        queries, commands = Queries(store), Commands(store)
        self.url, self.now = store.url, store.now
        self.job, self.find, self.walk, self.count = queries.job, store.find, queries.walk, queries.count
        self.end, self.result, self.signal = queries.end, queries.result, store.signal
        self.change_one, self.change = commands.change_one, commands.change
        self.change_matching, self.why_unchanged = commands.change_matching, commands.why_unchanged
        self.queues, self.queue = store.queues, commands.queue
        self.configure, self.pause, self.drain = commands.configure, commands.pause, commands.drain
        self.set_limit, self.remove_limit = commands.set_limit, commands.remove_limit
        self.workers, self.tokens = store.workers, self._tokens.list

    async def submit(self, kind: str, payload: Any, options: Mapping[str, Any]) -> SubmittedJob:
        [inserted] = await self._store.insert([self._make_factory().new_job(kind, payload, options)])
        return SubmittedJob(inserted.id, inserted.created)

    async def check_job(self, kind: str, payload: Any) -> None:
        self._make_factory().new_job(kind, payload)

    async def explain(self, job_id: str) -> Explanation:
        return explain(await self._store.standing(job_id))

    async def control_worker(self, worker_id: str, control: str) -> None:
        await control_worker(self._store, worker_id, control)

    async def groups(self, queue: str, after: str | None = None, page_size: int = PAGE) -> AsyncIterator[GroupInfo]:
        # A page of one may be the jobs without a group, which have no name to continue after.
        page_size = max(2, page_size)
        while page := await self._store.groups(queue, page_size, after):
            for group in page:
                yield group
            if len(page) < page_size:
                return
            after = page[-1].name

    # Schedules

    async def schedules(self) -> AsyncIterator[ScheduleView]:
        for each in await views_of(self._store, await self._schedules.all()):
            yield each

    async def schedule(self, name: str) -> ScheduleView:
        return await self._view(await self._schedules.get(name))

    async def add_schedule(self, fields: Mapping[str, Any]) -> ScheduleView:
        made = await self._schedules.add(self._make_factory().new_schedule(fields))
        details = {"expression": made.expression, "timezone": made.timezone, "kind": made.kind}
        await self._record("schedule.add", made.name, **details)
        return await self._view(made)

    async def edit_schedule(self, name: str, fields: Mapping[str, Any]) -> ScheduleView:
        needs_factory = bool(fields.keys() & {"kind", "payload"})
        made = await self._schedules.edit(name, fields, self._make_factory() if needs_factory else None)
        await self._record("schedule.edit", name, changed=", ".join(fields))
        return await self._view(made)

    async def pause_schedule(self, name: str) -> ScheduleView:
        made = await self._schedules.pause(name)
        await self._record("schedule.pause", name)
        return await self._view(made)

    async def resume_schedule(self, name: str) -> ScheduleView:
        made = await self._schedules.resume(name)
        await self._record("schedule.resume", name)
        return await self._view(made)

    async def remove_schedule(self, name: str) -> None:
        found = await self._schedules.remove(name)
        await self._record("schedule.remove", name, expression=found.expression, kind=found.kind)

    async def run_schedule(self, name: str) -> str:
        job_id = await self._schedules.run(name)
        await self._record("schedule.run", name, job=job_id)
        return job_id

    async def next_of_schedule(self, name: str, count: int) -> NextTicksResponse:
        found = await self._schedules.get(name)
        return next_ticks_response(found.expression, found.timezone, await self._schedules.next(name, count))

    async def schedule_history(self, name: str) -> AsyncIterator[TickView]:
        for each in await self._schedules.history(name, 100):
            yield tick_view(each)

    async def _view(self, schedule: Schedule) -> ScheduleView:
        return await view_of(self._store, schedule)

    # Tokens and the audit log

    async def create_token(
        self,
        name: str,
        role: str,
        *,
        queues: Sequence[str] = (),
        groups: Sequence[str] = (),
        expire_seconds: float | None = None,
    ) -> tuple[TokenInfo, str]:
        info, token = await self._tokens.create(name, role, queues, groups, expire_seconds)
        await self._record("token.create", info.id, name=name, role=role, queues=list(queues), groups=list(groups))
        return info, token

    async def revoke_token(self, token_id: str) -> bool:
        holder = await self._tokens.holder(token_id)
        if holder is None or not await self._tokens.revoke(token_id):
            return False
        await self._record("token.revoke", token_id, name=holder.name)
        return True

    async def audit_log(self) -> AsyncIterator[AuditEntry]:
        after = 0
        while page := await self._audit.read(after, PAGE):
            for entry in page:
                yield entry
            after = page[-1].number

    async def _record(self, action: str, target: str, **details: Any) -> None:
        await self._audit.record(self._principal, action, target, details)
