"""Live events as server-sent events: a snapshot after each connect, then the changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from jobyard.api.convert import job_summary, job_view, owner_tag, queue_view
from jobyard.api.schemas.events import SNAPSHOT, CloudEvent, EventsSnapshot, JobSnapshot
from jobyard.api.schemas.jobs import JobFilter, Name, RequestSchema
from jobyard.domain.access import Permission
from jobyard.domain.job import Job
from jobyard.server.auth import session_of
from jobyard.server.authorization import shown_job, visible_filters, visible_job
from jobyard.server.http_protocol import ABORT
from jobyard.server.route import RequestContext, Routes
from jobyard.server.routes.jobs import visible_jobs
from jobyard.server.streaming.encoding import ACCESS_ENDED, PING, RETRY, VISIBLE_PING, message
from jobyard.server.streaming.subscriber import Subscriber, Subscription

ROUTES = Routes("events")
# Proxies close connections that are silent for longer, often after 30 s or 60 s.
PING_SECONDS = 15.0
# A client that reads nothing for this long is disconnected; otherwise its buffer and connection leak.
SEND_SECONDS = 30.0
NEWEST = 50
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # stops nginx from buffering the stream
]
LAST_EVENT_ID = (
    "Last-Event-ID",
    "Sent by browsers when they reconnect. Ignored: each connection starts with a snapshot.",
)

EventType: TypeAlias = Literal[
    "enqueued", "started", "progress", "completed", "failed", "retrying", "cancelled", "queue", "stats"
]


class JobEventsQuery(RequestSchema, frozen=True, kw_only=True):
    type: tuple[EventType, ...] = ()
    # Interval of pings that scripts in browsers can see, so that they notice a silent server.
    ping_seconds: Annotated[float, msgspec.Meta(ge=1, le=60)] | None = None


class EventsQuery(JobEventsQuery, frozen=True, kw_only=True):
    queue: Name | None = None
    group: Name | None = None
    kind: Name | None = None
    job: Name | None = None


@ROUTES.add(
    "GET",
    "/v1/events",
    Permission.READ,
    query=EventsQuery,
    response=CloudEvent,
    headers=(LAST_EVENT_ID,),
    is_stream=True,
)
async def all_events(context: RequestContext) -> Response:
    """Stream live events (server-sent events)."""
    query: EventsQuery = context.query
    if query.job is not None:
        context.path["id"] = query.job
        return await stream_job(context)
    principal = context.principal
    subscription = Subscription(
        queue=query.queue,
        group=query.group,
        kind=query.kind,
        types=frozenset(query.type),
        queues=frozenset(principal.queues),
        groups=frozenset(principal.groups),
        kinds=frozenset(principal.kinds),
        own_tag=owner_tag(principal) if principal.sees_own_jobs_only else None,
        hides_secrets=not principal.may(Permission.REVEAL),
    )
    wanted = JobFilter(queue=query.queue, group=query.group, kind=query.kind)
    filters, is_visible = visible_filters(principal, wanted)

    async def snapshot() -> Any:
        queues = await context.operations.queues()
        newest, _ = await visible_jobs(context, filters, is_visible, NEWEST, None)
        return EventsSnapshot(
            queues=tuple(queue_view(info) for info in queues if subscription.wants_queue(info.name)),
            jobs=tuple([job_summary(await shown_job(principal, job)) for job in newest]),
        )

    return await EventStream(context, subscription, snapshot).opened()


@ROUTES.add(
    "GET",
    "/v1/jobs/{id}/events",
    Permission.READ,
    query=JobEventsQuery,
    response=CloudEvent,
    headers=(LAST_EVENT_ID,),
    is_stream=True,
)
async def job_events(context: RequestContext) -> Response:
    """Stream live events of one job (server-sent events)."""
    return await stream_job(context)


async def stream_job(context: RequestContext) -> Response:
    await visible_job(context)  # fails before the stream starts

    async def snapshot() -> Any:
        job = await visible_job(context)
        stream.watch(job)
        return JobSnapshot(job_view(await shown_job(context.principal, job)))

    subscription = Subscription(
        job_id=context.path["id"],
        types=frozenset(context.query.type),
        hides_secrets=not context.principal.may(Permission.REVEAL),
    )
    stream = EventStream(context, subscription, snapshot)
    return await stream.opened()


async def until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """A response without end. A client that does not keep up is disconnected, so that its backlog stays bounded."""

    def __init__(
        self,
        context: RequestContext,
        subscription: Subscription,
        snapshot: Callable[[], Awaitable[Any]],
    ) -> None:
        super().__init__()
        self._dependencies = context.dependencies
        self._snapshot = snapshot
        session = session_of(context.request)
        self._subscriber = Subscriber(subscription, context.principal.id, self._disconnect, session)
        ping_seconds: float | None = context.query.ping_seconds
        self._ping_seconds = ping_seconds or PING_SECONDS
        self._sees_pings = ping_seconds is not None
        self._watched: str | None = None
        self._first = b""
        self._is_open = False
        self._abort: Callable[[], None] | None = None

    def watch(self, job: Job) -> None:
        self._dependencies.broadcaster.watch(job)
        self._watched = job.id

    async def opened(self) -> EventStream:
        """Subscribe before the snapshot is read, so that no event between the two is missed."""
        broadcaster, subject = self._dependencies.broadcaster, self._subscriber.subscription.job_id or ""
        self._dependencies.open_requests.acquire(self._subscriber.principal_id)
        self._is_open = True
        try:
            await broadcaster.join(self._subscriber)
            number = broadcaster.next_id()  # before the read: events that arrive meanwhile get higher ids
            data = await self._snapshot()
            now = await self._dependencies.store.now()
            self._first = RETRY + message(number, broadcaster.source, SNAPSHOT, now, data, subject)
        except BaseException:
            self._close()
            raise
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._abort = scope.get(ABORT)
        disconnected = asyncio.ensure_future(self._end_on_disconnect(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            if scope["method"] == "HEAD":
                self._subscriber.end()
            await self._send_events(send)
            if self._subscriber.was_dropped and self._abort is not None:
                await asyncio.wait([disconnected], timeout=1.0)
        finally:
            disconnected.cancel()
            self._close()

    async def _send_events(self, send: Send) -> None:
        chunk: bytes | None = self._first
        self._first = b""
        ping = VISIBLE_PING if self._sees_pings else PING
        while chunk is not None:
            try:
                async with asyncio.timeout(SEND_SECONDS):
                    await send({"type": "http.response.body", "body": chunk or ping, "more_body": True})
            except TimeoutError:
                self._subscriber.drop()
            chunk = await self._subscriber.next(self._ping_seconds)
        if not self._subscriber.was_dropped:
            last = ACCESS_ENDED if self._sees_pings and not self._subscriber.has_access else b""
            await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _end_on_disconnect(self, receive: Receive) -> None:
        await until_disconnected(receive)
        self._subscriber.end()

    def _disconnect(self) -> None:
        if self._abort is not None:
            self._abort()

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._dependencies.open_requests.release(self._subscriber.principal_id)
        self._dependencies.broadcaster.leave(self._subscriber)
        if self._watched is not None:
            self._dependencies.broadcaster.unwatch(self._watched)
            self._watched = None
