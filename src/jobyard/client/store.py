"""What people do with a store, through a server: the verbs for workers stay with the store itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from jobyard.api.schemas.jobs import MAX_PAGE
from jobyard.api.schemas.queues import GroupPage
from jobyard.client.address import path
from jobyard.client.client import Client
from jobyard.client.convert import (
    RawJob,
    RawPage,
    conditions_of,
    explanation_of,
    group_of,
    job_of,
    queue_of,
    worker_of,
)
from jobyard.client.transport import as_query
from jobyard.domain.explain import Explanation
from jobyard.domain.instant import Instant
from jobyard.domain.job import Job, QueueSettings
from jobyard.errors import JobNotFound, NotPossible, ResultNotReady
from jobyard.ports.admin_store import Action, Changed, Filter, GroupInfo, Page, QueueInfo
from jobyard.ports.schedule_store import WorkerInfo

# Ids in one query: it stays well below what servers and proxies take as a URL.
AT_ONCE = 100


def stays(verb: str) -> Any:
    """A verb of the store that no server offers."""

    async def refuse(self: ServerStore, *_: Any, **__: Any) -> Any:
        raise NotPossible(f"{verb} needs the store itself; the server {self.url} does not offer it.")

    return refuse


class ServerStore:
    """A Store as far as people need one; `jobyard --server` stands on it."""

    has_transactions = False
    is_remote = True

    def __init__(self, client: Client) -> None:
        self.client = client
        self.url = client.url
        self._following: dict[tuple[str, str], str] = {}  # where the groups after that one are

    async def open(self) -> None:
        """Nothing is asked before the first verb."""

    async def close(self) -> None:
        await self.client.close()

    def for_event_loop(self) -> ServerStore:
        return self

    # People

    async def get(self, job_id: str) -> Job | None:
        try:
            return job_of(await self.client._transport.call("GET", path("v1", "jobs", job_id), RawJob))
        except JobNotFound:
            return None

    async def find(self, where: Filter, limit: int = 50, cursor: str | None = None) -> Page:
        if where.ids is not None:
            some = [where.ids[start : start + AT_ONCE] for start in range(0, len(where.ids), AT_ONCE)]
            return Page(tuple([job for ids in some for job in await self._with_ids(where, ids)]), None)
        return await self._page(conditions_of(where) | {"page_size": min(limit, MAX_PAGE), "page_token": cursor})

    async def _with_ids(self, where: Filter, ids: Sequence[str]) -> list[Job]:
        return [job async for job in self._walk(conditions_of(where) | {"id": ids, "page_size": MAX_PAGE})]

    async def _walk(self, words: dict[str, Any]) -> AsyncIterator[Job]:
        while True:
            page = await self._page(words)
            for job in page.jobs:
                yield job
            if page.cursor is None:
                return
            words = words | {"page_token": page.cursor}

    async def _page(self, words: dict[str, Any]) -> Page:
        page = await self.client._transport.call("GET", "/v1/jobs", RawPage, query=as_query(words))
        token = None if page.next_page_token is UNSET else str(page.next_page_token)
        return Page(tuple(job_of(each) for each in page.items), token)

    async def change(self, action: Action, job_ids: Sequence[str], *, reason: str = "", priority: int = 0) -> Changed:
        answer = await self.client.change(action, ids=job_ids, reason=reason, priority=priority)
        return Changed(answer.changed_ids or (), answer.unchanged_ids or ())

    async def configure(self, queue: str, settings: QueueSettings) -> None:
        await self.client.configure(queue, **{name: getattr(settings, name) for name in settings.__struct_fields__})

    async def set_paused(self, queue: str, group: str | None, paused: bool) -> None:
        await (self.client.pause(queue, group) if paused else self.client.resume(queue, group))

    async def set_limit(self, queue: str, group: str, limit: int | None) -> None:
        if limit is None:
            await self.client.remove_limit(queue, group)
        else:
            await self.client.set_limit(queue, group, limit)

    async def queues(self) -> list[QueueInfo]:
        return [queue_of(each) for each in await self.client.queues()]

    async def groups(self, queue: str, limit: int = 1000, after: str | None = None) -> list[GroupInfo]:
        """A server's pages go on by tokens of its own: those of the pages that were seen are remembered."""
        found: list[GroupInfo] = []
        token = None if after is None else self._following.get((queue, after))
        while True:
            query = as_query({"page_size": min(limit, MAX_PAGE), "page_token": token})
            at = path("v1", "queues", queue, "groups")
            page = await self.client._transport.call("GET", at, GroupPage, query=query)
            found += [
                group_of(each) for each in page.items if after is None or (each.name is not None and each.name > after)
            ]
            if page.next_page_token is UNSET:
                return found[:limit]
            token = str(page.next_page_token)
            if page.items and page.items[-1].name is not None:
                self._following[queue, page.items[-1].name] = token
            if len(found) >= limit:
                return found[:limit]

    async def explain(self, job_id: str) -> Explanation:
        return explanation_of(await self.client.explain(job_id))

    async def wait_for_end(self, job_id: str, timeout_seconds: float) -> Job | None:
        try:
            await self.client.end(job_id, timeout_seconds)
        except ResultNotReady:
            return None
        return await self.get(job_id)

    async def signal(self, job_id: str, name: str, data: bytes = b"null") -> bool:
        return await self.client.signal(job_id, name, msgspec.Raw(data))

    async def now(self) -> Instant:
        return self.client._transport.now()

    async def workers(self) -> list[WorkerInfo]:
        return [worker_of(each) for each in await self.client.workers()]

    # The store's own

    ages = stays("ages")
    insert = stays("insert")
    exchange = stays("exchange")
    settle = stays("settle")
    extend = stays("extend")
    report = stays("report")
    reclaim = stays("reclaim")
    wait_for_work = stays("wait_for_work")
    adopt = stays("adopt")
    standing = stays("standing")
    prune = stays("prune")
    audit = stays("audit")
    arm = stays("arm")
    disarm = stays("disarm")
    armed = stays("armed")
    decide = stays("decide")
    ticks = stays("ticks")
    heartbeat = stays("heartbeat")
    put = stays("put")
    fetch = stays("fetch")
    fetch_all = stays("fetch_all")
    remove = stays("remove")
    append = stays("append")
    read = stays("read")
    trim = stays("trim")
    diagnose = stays("diagnose")
    migrations = stays("migrations")
