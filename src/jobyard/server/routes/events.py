"""Live events: a snapshot first, on every reconnect too, then what changes, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from jobyard.api.convert import job_summary, job_view, owner_tag, queue_view
from jobyard.api.schemas.events import SNAPSHOT, CloudEvent, EventsSnapshot, JobSnapshot
from jobyard.api.schemas.jobs import JobFilter, Name, RequestSchema
from jobyard.domain.access import Permission
from jobyard.domain.job import Job
from jobyard.server.authorization import visible_filters, visible_job
from jobyard.server.dependencies import Dependencies
from jobyard.server.http_protocol import ABORT
from jobyard.server.route import RequestContext, Routes
from jobyard.server.streaming.encoding import PING, RETRY, message
from jobyard.server.streaming.subscriber import Subscriber, Subscription
from jobyard.server.visible_jobs import find_visible

ROUTES = Routes("events")
PING_SECONDS = 15.0
# A reader that takes nothing for so long is let go.
SEND_SECONDS = 30.0
NEWEST = 50
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # or nginx would keep events to itself
]
LAST_EVENT_ID = ("Last-Event-ID", "Sent by browsers when they reconnect; the snapshot makes up for what was missed.")

Type: TypeAlias = Literal["enqueued", "started", "progress", "completed", "failed", "retrying", "cancelled", "queue"]


class JobEventsQuery(RequestSchema, frozen=True, kw_only=True):
    type: tuple[Type, ...] = ()


class EventsQuery(JobEventsQuery, frozen=True, kw_only=True):
    queue: Name | None = None
    group: Name | None = None
    kind: Name | None = None
    job: Name | None = None


@ROUTES.add(
    "GET",
    "/v1/events",
    Permission.READ,
    "What happens, as it happens (server-sent events)",
    query=EventsQuery,
    answer=CloudEvent,
    headers=(LAST_EVENT_ID,),
    stays_open=True,
)
async def all_events(context: RequestContext) -> Response:
    asked: EventsQuery = context.query
    if asked.job is not None:
        context.path["id"] = asked.job
        return await stream_of_job(context)
    who = context.principal
    audience = Subscription(
        queue=asked.queue,
        group=asked.group,
        kind=asked.kind,
        types=frozenset(asked.type),
        queues=frozenset(who.queues),
        groups=frozenset(who.groups),
        own_tag=owner_tag(who) if who.sees_own_jobs_only else None,
    )
    within, keep = visible_filters(who, JobFilter(queue=asked.queue, group=asked.group, kind=asked.kind))

    async def snapshot() -> Any:
        queues = await context.dependencies.store.queues()
        page = await find_visible(context.dependencies.store, within, NEWEST)
        return EventsSnapshot(
            queues=tuple(queue_view(info) for info in queues if audience.wants_queue(info.name)),
            jobs=tuple(job_summary(job) for job in page.jobs if keep(job)),
        )

    return await EventStream(context.dependencies, audience, who.id, snapshot).opened()


@ROUTES.add(
    "GET",
    "/v1/jobs/{id}/events",
    Permission.READ,
    "What happens to one job, as it happens (server-sent events)",
    query=JobEventsQuery,
    answer=CloudEvent,
    headers=(LAST_EVENT_ID,),
    stays_open=True,
)
async def job_events(context: RequestContext) -> Response:
    return await stream_of_job(context)


async def stream_of_job(context: RequestContext) -> Response:
    await visible_job(context)  # refused before the stream begins

    async def snapshot() -> Any:
        job = await visible_job(context)
        stream.watch(job)
        return JobSnapshot(job_view(job))

    audience = Subscription(job_id=context.path["id"], types=frozenset(context.query.type))
    stream = EventStream(context.dependencies, audience, context.principal.id, snapshot)
    return await stream.opened()


class EventStream(Response):
    """An answer without end. Whoever does not keep up is cut off, so that nothing is kept for ever."""

    def __init__(
        self,
        dependencies: Dependencies,
        audience: Subscription,
        principal_id: str,
        snapshot: Callable[[], Awaitable[Any]],
    ) -> None:
        super().__init__()
        self._dependencies = dependencies
        self._snapshot = snapshot
        self._listener = Subscriber(audience, principal_id, self._cut_off)
        self._watched: str | None = None
        self._first = b""
        self._is_open = False
        self._abort: Callable[[], None] | None = None

    def watch(self, job: Job) -> None:
        self._dependencies.broadcaster.watch(job)
        self._watched = job.id

    async def opened(self) -> EventStream:
        """Joined first, so that nothing is missed between the snapshot and what follows."""
        streams, subject = self._dependencies.broadcaster, self._listener.audience.job_id or ""
        self._dependencies.open.enter(self._listener.principal_id)
        self._is_open = True
        try:
            await streams.join(self._listener)
            number = streams.next_id()  # taken now: what comes while the store is read follows with higher ones
            data = await self._snapshot()
            now = await self._dependencies.store.now()
            self._first = RETRY + message(number, streams.source, SNAPSHOT, now, data, subject)
        except BaseException:
            self._close()
            raise
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._abort = scope.get(ABORT)
        gone = asyncio.ensure_future(self._until_gone(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            if scope["method"] == "HEAD":
                self._listener.end()
            await self._flow(send)
            if self._listener.was_dropped and self._abort is not None:
                await asyncio.wait([gone], timeout=1.0)
        finally:
            gone.cancel()
            self._close()

    async def _flow(self, send: Send) -> None:
        chunk: bytes | None = self._first
        self._first = b""
        while chunk is not None:
            try:
                async with asyncio.timeout(SEND_SECONDS):
                    await send({"type": "http.response.body", "body": chunk or PING, "more_body": True})
            except TimeoutError:
                self._listener.drop()
            chunk = await self._listener.next(PING_SECONDS)
        if not self._listener.was_dropped:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _until_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._listener.end()

    def _cut_off(self) -> None:
        if self._abort is not None:
            self._abort()

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._dependencies.open.leave(self._listener.principal_id)
        self._dependencies.broadcaster.leave(self._listener)
        if self._watched is not None:
            self._dependencies.broadcaster.unwatch(self._watched)
            self._watched = None
