"""`Operations` through a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from jobyard.api.schemas.jobs import MAX_PAGE, KindList
from jobyard.api.schemas.schedules import ScheduleView
from jobyard.client import convert
from jobyard.client.address import path
from jobyard.client.client import Client
from jobyard.client.transport import as_query
from jobyard.domain.access import AuditEntry, TokenInfo
from jobyard.domain.explain import Explanation
from jobyard.domain.instant import Instant
from jobyard.domain.job import Job
from jobyard.errors import JobNotFound, NotFound, ResultNotReady, UnknownKind, did_you_mean
from jobyard.operations.commands import Commands, found_queue
from jobyard.operations.protocol import SubmittedJob
from jobyard.operations.queries import Queries
from jobyard.operations.schedule_options import BY_FIELD
from jobyard.operations.worker_control import Control, checked_control
from jobyard.ports.admin_store import Action, Changed, Filter, GroupInfo, Page, QueueInfo
from jobyard.ports.schedule_store import WorkerInfo

# Ids in one query: the URL stays well below the length that servers and proxies accept.
IDS_AT_ONCE = 100


class ServerJobs:
    """The verbs below `Queries` and `Commands`: a `JobWriter` whose store is behind a server."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._call = client._transport.call

    async def get(self, job_id: str) -> Job | None:
        try:
            return convert.job_of(await self._call("GET", path("v1", "jobs", job_id), convert.RawJob))
        except JobNotFound:
            return None

    async def find(self, where: Filter, limit: int = 50, cursor: str | None = None) -> Page:
        if where.ids is None:
            wanted = {"page_size": min(limit, MAX_PAGE), "page_token": cursor}
            return await self._page(convert.conditions_of(where) | wanted)
        jobs: list[Job] = []
        for start in range(0, len(where.ids), IDS_AT_ONCE):
            ids = where.ids[start : start + IDS_AT_ONCE]
            query = convert.conditions_of(where) | {"id": ids, "page_size": MAX_PAGE}
            while True:
                page = await self._page(query)
                jobs += page.jobs
                if page.cursor is None:
                    break
                query["page_token"] = page.cursor
        return Page(tuple(jobs), None)

    async def _page(self, query: dict[str, Any]) -> Page:
        page = await self._call("GET", "/v1/jobs", convert.RawPage, query=as_query(query))
        token = None if page.next_page_token is UNSET else str(page.next_page_token)
        return Page(tuple(convert.job_of(each) for each in page.items), token)

    async def wait_for_end(self, job_id: str, timeout_seconds: float) -> Job | None:
        try:
            await self._client.end(job_id, timeout_seconds)
        except ResultNotReady:
            return None
        return await self.get(job_id)

    async def change(self, action: Action, job_ids: Sequence[str], *, reason: str = "", priority: int = 0) -> Changed:
        answer = await self._client.change(action, ids=job_ids, reason=reason, priority=priority)
        return Changed(answer.changed_ids or (), answer.unchanged_ids or ())

    async def set_paused(self, queue: str, group: str | None, paused: bool) -> None:
        await (self._client.pause(queue, group) if paused else self._client.resume(queue, group))

    async def set_limit(self, queue: str, group: str, limit: int | None) -> None:
        if limit is None:
            await self._client.remove_limit(queue, group)
        else:
            await self._client.set_limit(queue, group, limit)


class RemoteOperations:
    """The server writes the audit log."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kinds: KindList | None = None
        jobs = ServerJobs(client)
        queries, commands = Queries(jobs), Commands(jobs)
        self.url = client.url
        self.job, self.find, self.walk, self.count = queries.job, jobs.find, queries.walk, queries.count
        self.end, self.result = queries.end, queries.result
        self.change_one, self.change = commands.change_one, commands.change
        self.change_matching, self.why_unchanged = commands.change_matching, commands.why_unchanged
        self.pause, self.drain, self.remove_queue = commands.pause, client.drain, client.remove_queue
        self.set_limit, self.remove_limit = commands.set_limit, commands.remove_limit
        self.schedules, self.schedule = client.schedules, client.schedule
        self.pause_schedule, self.resume_schedule = client.pause_schedule, client.resume_schedule
        self.remove_schedule, self.run_schedule = client.remove_schedule, client.run_schedule
        self.next_of_schedule, self.schedule_history = client.next_of_schedule, client.schedule_history
        self.workflows, self.run_workflow = client.workflows, client.run_workflow
        self.workflow_run, self.history = client.workflow_run, client.history

    async def now(self) -> Instant:
        return self._client._transport.now()

    async def submit(self, kind: str, payload: Any, options: Mapping[str, Any]) -> SubmittedJob:
        job = await self._client.enqueue(kind, payload, **options)
        return SubmittedJob(job.id, job.created)

    async def check_job(self, kind: str, payload: Any) -> None:
        """Only the kind: the server checks the payload when the job is submitted."""
        if self._kinds is None:
            self._kinds = await self._client.kinds()
        known = [each.name for each in self._kinds.items]
        if not self._kinds.any_kind and kind not in known:
            raise UnknownKind(f'Kind "{kind}" not found.{did_you_mean(kind, known)}')

    async def explain(self, job_id: str) -> Explanation:
        return convert.explanation_of(await self._client.explain(job_id))

    async def signal(self, job_id: str, name: str, data: bytes = b"null", *, signal_id: str | None = None) -> bool:
        return await self._client.signal(job_id, name, msgspec.Raw(data), signal_id=signal_id)

    async def queues(self) -> list[QueueInfo]:
        return [convert.queue_of(each) for each in await self._client.queues()]

    async def queue(self, name: str) -> QueueInfo:
        return found_queue(name, await self.queues())

    async def configure(self, queue: str, changes: Mapping[str, Any]) -> None:
        await self._client.configure(queue, **changes)

    async def reset_settings(self, queue: str) -> None:
        await self._client.reset_settings(queue)

    async def groups(self, queue: str, after: str | None = None, page_size: int = 200) -> AsyncIterator[GroupInfo]:
        async for each in self._client.groups(queue, page_size=page_size):
            if after is None or (each.name is not None and each.name > after):
                yield convert.group_of(each)

    async def workers(self) -> list[WorkerInfo]:
        # Live ones, as a store lists them.
        return [convert.worker_of(each) for each in await self._client.workers() if not each.is_lost]

    async def control_worker(self, worker_id: str, control: str) -> None:
        verbs = {Control.QUIET: self._client.quiet, Control.STOP: self._client.stop}
        await verbs[checked_control(control)](worker_id)

    async def add_schedule(self, fields: Mapping[str, Any]) -> ScheduleView:
        return await self._client._add(fields, BY_FIELD)

    async def edit_schedule(self, name: str, fields: Mapping[str, Any]) -> ScheduleView:
        return await self._client._edit(name, fields, BY_FIELD)

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
        made = await self._client.create_token(
            name, role, queues=queues, groups=groups, kinds=kinds, expire_seconds=expire_seconds
        )
        return convert.token_of(made), made.token

    async def tokens(self) -> list[TokenInfo]:
        return [convert.token_of(view) for view in await self._client.tokens()]

    async def rotate_token(self, token_id: str, overlap_seconds: float = 0.0) -> tuple[TokenInfo, str] | None:
        try:
            made = await self._client.rotate_token(token_id, overlap_seconds)
        except NotFound:
            return None
        return convert.token_of(made), made.token

    async def revoke_token(self, token_id: str) -> bool:
        try:
            await self._client.revoke_token(token_id)
        except NotFound:
            return False
        return True

    async def audit_log(self) -> AsyncIterator[AuditEntry]:
        async for each in self._client.audit():
            yield convert.entry_of(each)
