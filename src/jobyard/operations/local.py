"""`Operations` on a store in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

import msgspec

from jobyard.api.schemas.access import token_view
from jobyard.api.schemas.schedules import NextTicksResponse, ScheduleView, TickView, next_ticks_response, tick_view
from jobyard.api.schemas.workflows import OperationView, WorkflowRunView, WorkflowView
from jobyard.domain.access import OWNER, AuditEntry, Principal, Role, TokenInfo
from jobyard.domain.explain import Explanation
from jobyard.domain.schedule import Schedule
from jobyard.executors.workflow.relay import deliver_ended
from jobyard.operations import queue_settings
from jobyard.operations.audit_log import START, Audit, position_after
from jobyard.operations.commands import Commands, found_queue
from jobyard.operations.explanations import explain_position
from jobyard.operations.job_factory import JobFactory
from jobyard.operations.organizations import known_group
from jobyard.operations.protocol import SubmittedJob
from jobyard.operations.queries import Queries
from jobyard.operations.schedules import SHORTEST_INTERVAL_SECONDS, Schedules, view_of, views_of
from jobyard.operations.tokens import Tokens
from jobyard.operations.worker_control import control_worker
from jobyard.operations.workflow_catalog import WorkflowCatalog
from jobyard.operations.workflow_history import operation_views
from jobyard.operations.workflow_runs import load_run, run_view, workflow_view
from jobyard.ports.admin_store import Action, Changed, Filter, GroupInfo, QueueInfo
from jobyard.ports.store import Store

PAGE = 200


# The audit log lists at most this many ids of a bulk action.
AUDITED_IDS = 20


def store_commands(store: Store) -> Commands:
    """Commands on a store, which can deliver the ends that a deletion waits for."""
    return Commands(store, partial(deliver_ended, store))


class LocalOperations:
    """`make_factory` is called for the first job: it may have to load an app. The default accepts every kind.
    `make_workflows` is called for the first workflow file.

    `store`, `commands` and `schedule_list` are what it is built of. Changes that are made through them directly are
    not in the audit log.
    """

    def __init__(
        self,
        store: Store,
        make_factory: Callable[[], JobFactory] = JobFactory,
        *,
        shortest_interval_seconds: float = SHORTEST_INTERVAL_SECONDS,
        tokens: Tokens | None = None,
        audit: Audit | None = None,
        make_workflows: Callable[[], WorkflowCatalog] = WorkflowCatalog,
    ) -> None:
        self.store = store
        self.commands = store_commands(store)
        self.schedule_list = Schedules(store, shortest_interval_seconds)
        self.audit = audit or Audit(store)
        self._make_factory = make_factory
        self._make_workflows = make_workflows
        self._principal = OWNER
        self._tokens = tokens or Tokens(store)
        queries = Queries(store)
        self.url, self.now = store.url, store.now
        self.job, self.find, self.walk, self.count = queries.job, store.find, queries.walk, queries.count
        self.end, self.result = queries.end, queries.result
        self.why_unchanged = self.commands.why_unchanged
        self.workers, self.tokens = store.workers, self._tokens.list

    def as_principal(self, principal: Principal) -> LocalOperations:
        """The same operations, recorded in the audit log as this principal's."""
        own = copy(self)
        own._principal = principal
        return own

    def covers(self, other: Principal) -> bool:
        """Whether the scope of the principal includes that of the other one, and the kinds that it names."""
        own = self._principal
        if not own.covers(other):
            return False
        # A kind that a token names counts whatever queue its handler declares.
        return not own.queues or all(self._make_factory().may_submit(own, kind) for kind in other.kinds)

    async def record(self, action: str, target: str = "", **details: Any) -> None:
        """Append to the audit log; empty details are left out."""
        given = {name: value for name, value in details.items() if value not in (None, "", ())}
        await self.audit.record(self._principal, action, target, given)

    # Jobs

    async def submit(self, kind: str, payload: Any, options: Mapping[str, Any]) -> SubmittedJob:
        [inserted] = await self.store.insert([self._make_factory().new_job(kind, payload, options)])
        return SubmittedJob(inserted.id, inserted.created)

    async def check_job(self, kind: str, payload: Any) -> None:
        self._make_factory().new_job(kind, payload)

    async def explain(self, job_id: str) -> Explanation:
        return await explain_position(self.store, await self.store.position(job_id))

    async def signal(self, job_id: str, name: str, data: bytes = b"null", *, signal_id: str | None = None) -> bool:
        woke = await self.store.signal(job_id, name, data, signal_id=signal_id)
        await self.record("job.signal", job_id, signal=name)
        return woke

    # Workflows

    async def workflows(self) -> Sequence[WorkflowView]:
        definitions = self._make_workflows().definitions
        return [workflow_view(definitions[name]) for name in sorted(definitions)]

    async def run_workflow(
        self,
        workflow_id: str,
        params: Mapping[str, Any] | None = None,
        *,
        platform: str | None = None,
        priority: int | None = None,
    ) -> str:
        job = self._make_workflows().new_job(workflow_id, params, platform, priority)
        return (await self.store.insert([job]))[0].id

    async def workflow_run(self, job_id: str) -> WorkflowRunView:
        return run_view(await load_run(self.store, await self.job(job_id)), await self.now())

    async def history(self, job_id: str, *, with_results: bool = False) -> AsyncIterator[OperationView]:
        job, after = await self.job(job_id), 0
        while True:
            page, following = await operation_views(self.store, job, after=after, limit=PAGE, with_results=with_results)
            for each in page:
                yield each
            if following is None:
                return
            after = following

    # Changes to jobs

    async def change_one(self, action: Action, job_id: str, *, reason: str = "", priority: int = 0) -> None:
        await self.commands.change_one(action, job_id, reason=reason, priority=priority)
        await self.record_bulk(action, 1, reason, ids=[job_id], priority=priority)

    async def change(self, action: Action, job_ids: Sequence[str], *, reason: str = "", priority: int = 0) -> Changed:
        changed = await self.commands.change(action, job_ids, reason=reason, priority=priority)
        await self.record_bulk(action, len(changed.changed), reason, ids=job_ids, priority=priority)
        return changed

    async def change_matching(
        self, action: Action, where: Filter, *, reason: str = "", priority: int = 0
    ) -> AsyncIterator[Changed]:
        changed = 0
        try:
            async for batch in self.commands.change_matching(action, where, reason=reason, priority=priority):
                changed += len(batch.changed)
                yield batch
        finally:
            chosen = {name: value for name, value in msgspec.to_builtins(where).items() if value is not None}
            await self.record_bulk(action, changed, reason, where=chosen, priority=priority)

    async def record_bulk(
        self,
        action: Action,
        changed: int,
        reason: str,
        *,
        where: Mapping[str, Any] | None = None,
        ids: Sequence[str] | None = None,
        priority: int | None = None,
    ) -> None:
        """Record a change to the jobs of a filter or to these ids, with the number of jobs that it changed.

        A change of one job by its id is recorded as such, by whatever command or request it was made.
        """
        given: dict[str, Any] = {"reason": reason, "priority": priority if action is Action.PRIORITISE else None}
        if ids is not None and len(ids) == changed == 1:
            await self.record(f"job.{action}", ids[0], **given)
            return
        listed: dict[str, Any] = {} if ids is None else {"ids": list(ids[:AUDITED_IDS]), "ids_given": len(ids)}
        await self.record(f"jobs.{action}", changed=changed, filter=where or None, **given, **listed)

    # Queues, groups and workers

    async def queues(self) -> list[QueueInfo]:
        return await queue_settings.with_origins(self.store, await self.store.queues())

    async def queue(self, name: str) -> QueueInfo:
        return found_queue(name, await self.queues())

    async def configure(self, queue: str, changes: Mapping[str, Any]) -> None:
        await queue_settings.change(self.store, queue, changes)
        await self.audit.record(self._principal, "queue.configure", queue, changes)

    async def reset_settings(self, queue: str) -> None:
        await queue_settings.reset(self.store, queue)
        await self.record("queue.reset", queue)

    async def set_limit(self, queue: str, group: str, limit: int) -> None:
        group = await known_group(self.store, queue, group)
        await self.commands.set_limit(queue, group, limit)
        await self.record("group.limit", f"{queue}/{group}", limit=limit)

    async def remove_limit(self, queue: str, group: str) -> None:
        group = await known_group(self.store, queue, group)
        await self.commands.remove_limit(queue, group)
        await self.record("group.unlimit", f"{queue}/{group}")

    async def pause(self, queue: str, group: str | None = None, *, paused: bool = True) -> None:
        group = None if group is None else await known_group(self.store, queue, group)
        await self.commands.pause(queue, group, paused=paused)
        what, target = ("queue", queue) if group is None else ("group", f"{queue}/{group}")
        await self.record(f"{what}.pause" if paused else f"{what}.resume", target)

    async def remove_queue(self, queue: str) -> None:
        if not await queue_settings.remove(self.store, queue):
            found_queue(queue, await self.store.queues())
        await self.record("queue.remove", queue)

    async def drain(self, queue: str) -> int:
        removed = await self.commands.drain(queue)
        await self.record("queue.drain", queue, removed=removed)
        return removed

    async def control_worker(self, worker_id: str, control: str) -> None:
        await control_worker(self.store, worker_id, control)
        await self.record(f"worker.{control}", worker_id)

    async def groups(self, queue: str, after: str | None = None, page_size: int = PAGE) -> AsyncIterator[GroupInfo]:
        # A page of one may be the jobs without a group, which have no name to continue after.
        page_size = max(2, page_size)
        while page := await self.store.groups(queue, page_size, after):
            for group in page:
                yield group
            if len(page) < page_size:
                return
            after = page[-1].name

    # Schedules

    async def schedules(self) -> AsyncIterator[ScheduleView]:
        for each in await views_of(self.store, await self.schedule_list.all()):
            yield each

    async def schedule(self, name: str) -> ScheduleView:
        return await self._view(await self.schedule_list.get(name))

    async def add_schedule(self, fields: Mapping[str, Any]) -> ScheduleView:
        return await self.insert_schedule(self._make_factory().new_schedule(fields))

    async def insert_schedule(self, schedule: Schedule) -> ScheduleView:
        made = await self.schedule_list.add(schedule)
        details = {"expression": made.expression, "timezone": made.timezone, "kind": made.kind}
        await self.record("schedule.add", made.name, **details)
        return await self._view(made)

    async def edit_schedule(self, name: str, fields: Mapping[str, Any]) -> ScheduleView:
        needs_factory = bool(fields.keys() & {"kind", "payload"})
        made = await self.schedule_list.edit(name, fields, self._make_factory() if needs_factory else None)
        if fields:
            await self.record("schedule.edit", name, changed=", ".join(fields))
        return await self._view(made)

    async def pause_schedule(self, name: str) -> ScheduleView:
        made = await self.schedule_list.pause(name)
        await self.record("schedule.pause", name)
        return await self._view(made)

    async def resume_schedule(self, name: str) -> ScheduleView:
        made = await self.schedule_list.resume(name)
        await self.record("schedule.resume", name)
        return await self._view(made)

    async def remove_schedule(self, name: str) -> None:
        found = await self.schedule_list.remove(name)
        await self.record("schedule.remove", name, expression=found.expression, kind=found.kind)

    async def run_schedule(self, name: str) -> str:
        job_id = await self.schedule_list.run(name)
        await self.record("schedule.run", name, job=job_id)
        return job_id

    async def next_of_schedule(self, name: str, count: int) -> NextTicksResponse:
        found = await self.schedule_list.get(name)
        return next_ticks_response(found.expression, found.timezone, await self.schedule_list.next(name, count))

    async def schedule_history(self, name: str) -> AsyncIterator[TickView]:
        for each in await self.schedule_list.history(name, 100):
            yield tick_view(each)

    async def _view(self, schedule: Schedule) -> ScheduleView:
        return await view_of(self.store, schedule)

    # Tokens and the audit log

    async def create_token(
        self,
        name: str,
        role: str,
        *,
        queues: Sequence[str] = (),
        groups: Sequence[str] = (),
        kinds: Sequence[str] = (),
        expire_seconds: float | None = None,
    ) -> tuple[TokenInfo, str]:
        info, token = await self._tokens.create(
            name, role, queues, groups, kinds, expire_seconds, lambda other: self.covers(other.principal)
        )
        view = token_view(info)
        shown = {field: getattr(view, field) for field in ("name", "role", "queues", "groups", "kinds")}
        await self.record("token.create", info.id, **shown, expires_at=view.expires_at)
        return info, token

    async def rotate_token(self, token_id: str, overlap_seconds: float = 0.0) -> tuple[TokenInfo, str] | None:
        holder = await self._tokens.holder(token_id)
        if holder is None or not self.covers(holder):
            return None
        rotated = await self._tokens.rotate(token_id, overlap_seconds)
        if rotated is not None:
            await self.record("token.rotate", token_id, name=holder.name, overlap_seconds=overlap_seconds)
        return rotated

    async def revoke_token(self, token_id: str) -> bool:
        holder = await self._tokens.holder(token_id)
        if holder is None or not self.covers(holder):
            return False
        # With access to the store, a new admin token can always be created.
        keeps_admin = holder.role is Role.ADMIN and self._principal.id != OWNER.id
        revoke = self._tokens.revoke_admin if keeps_admin else self._tokens.revoke
        if not await revoke(token_id):
            return False
        await self.record("token.revoke", token_id, name=holder.name, role=holder.role)
        return True

    async def audit_log(self) -> AsyncIterator[AuditEntry]:
        after = START
        while page := await self.audit.read(after, PAGE):
            for entry in page:
                yield entry
            after = position_after(after, page)
