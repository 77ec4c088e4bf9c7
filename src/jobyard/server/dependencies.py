"""What every handler needs: the store's services, who may come in, and the limits of this dependencies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import msgspec

from jobyard.domain.access import OWNER, Principal
from jobyard.domain.job import Job, NewJob, State
from jobyard.executors.sandbox.bounds import Bounds
from jobyard.live_events.event import LiveEvent, LiveEventType
from jobyard.live_events.poller import live_event_of
from jobyard.live_events.publisher import LiveEventPublisher
from jobyard.observability.metrics import Metrics
from jobyard.operations.audit import KEEP, Audit
from jobyard.operations.commands import Commands
from jobyard.operations.health import Health
from jobyard.operations.job_factory import JobFactory
from jobyard.operations.queries import Queries
from jobyard.operations.sandboxes import Sandboxes
from jobyard.operations.schedules import Schedules
from jobyard.ports.store import Store
from jobyard.server.prometheus import MetricsExporter
from jobyard.server.rate_limit import OpenRequestLimit
from jobyard.server.streaming.broadcaster import Broadcaster

if TYPE_CHECKING:
    from starlette.requests import Request


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    max_body_bytes: int = 2 << 20
    requests_per_second: float = 500.0  # per token, over a short while
    request_burst: int = 1000
    header_seconds: float = 10.0
    audit_keep: int = KEEP  # entries


class Authenticator(Protocol):
    """Lets somebody in by what the request carries; None when nobody can be told from it."""

    async def authenticate(self, request: Request) -> Principal | None: ...


class OpenAccess:
    """For a server on loopback that was started with --insecure."""

    async def authenticate(self, request: Request) -> Principal | None:
        return OWNER


class Dependencies:
    def __init__(
        self, store: Store, submit: JobFactory, authenticator: Authenticator, settings: ServerSettings | None = None
    ) -> None:
        self.store = store
        self.submit = submit
        self.authenticator = authenticator
        self.settings = settings or ServerSettings()
        self.read = Queries(store)
        self.operate = Commands(store)
        self.audit = Audit(store, self.settings.audit_keep)
        self.schedules = Schedules(store)
        self.sandboxes = Sandboxes(store)
        self.bounds = Bounds()  # of what a program may be given
        self.open = OpenRequestLimit()
        self.draining = asyncio.Event()  # set when the server stops: what stays open ends, and it is ready no more
        self.health = Health(store, self.draining.is_set)
        self.exporter = MetricsExporter(store, Metrics())
        self.broadcaster = Broadcaster(store, self.draining, getattr(authenticator, "holds", None))
        self.feed = LiveEventPublisher(store, self.broadcaster.name)

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        """What runs as long as the server does."""
        await self.feed.start()
        try:
            yield
        finally:
            await self.feed.stop()

    def enqueued(self, job: NewJob | Job) -> None:
        """A job was stored through this server: count it, and tell whoever listens."""
        self.exporter.metrics.enqueued(job.queue, job.kind)
        if self.feed.wants_each_job:
            what, state = LiveEventType.ENQUEUED, State.PENDING
            told = LiveEvent(type=what, state=state, job_id=job.id, kind=job.kind, queue=job.queue, group=job.group)
            self.feed.publish(told)

    def changed(self, job: Job) -> None:
        """Somebody ended or revived a job that no worker holds: tell whoever listens, for no worker will."""
        if self.feed.wants_each_job and job.state is not State.RUNNING:
            self.feed.publish(live_event_of(job))

    def changed_many(self) -> None:
        """Too many to be told one by one: whoever listens looks anew."""
        self.feed.publish(LiveEvent(type=LiveEventType.RESYNC))
