"""Dependencies of the route handlers: the store, its operations, the authenticator, limits and live events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from jobyard.api.schemas.charts import ConfigurationItem
from jobyard.config.sections import ServerSection
from jobyard.domain.access import OWNER, Principal
from jobyard.domain.instant import Instant
from jobyard.domain.job import Job, NewJob, State
from jobyard.executors.sandbox.bounds import Bounds
from jobyard.github.metrics import gauges_text
from jobyard.github.services import RunnerServices
from jobyard.live_events.event import LiveEvent, LiveEventType
from jobyard.live_events.poller import live_event_of
from jobyard.live_events.publisher import LiveEventPublisher
from jobyard.observability.metrics import Metrics
from jobyard.operations.audit_log import Audit
from jobyard.operations.chart_log import ChartRange, Gauge, longest_queues
from jobyard.operations.chart_writer import ChartWriter
from jobyard.operations.charts import Charts
from jobyard.operations.health import Health
from jobyard.operations.job_factory import JobFactory
from jobyard.operations.local import LocalOperations
from jobyard.operations.overview import Overview
from jobyard.operations.sandboxes import Sandboxes
from jobyard.operations.schedules import SHORTEST_INTERVAL_SECONDS
from jobyard.operations.store_watch import StoreWatch
from jobyard.operations.tokens import Tokens
from jobyard.operations.workflow_catalog import WorkflowCatalog
from jobyard.ports.store import Store
from jobyard.server.bulk_operations import BulkOperations
from jobyard.server.known_queues import KnownQueues
from jobyard.server.prometheus import MetricsExporter
from jobyard.server.rate_limit import OpenRequestLimit
from jobyard.server.streaming.broadcaster import Broadcaster

if TYPE_CHECKING:
    from starlette.requests import Request


class Authenticator(Protocol):
    on_wrong_token: Callable[[], None]

    @property
    def tokens(self) -> Tokens | None: ...

    async def authenticate(self, request: Request) -> Principal | None:
        """The principal of the request, by its token or session; None if it has no valid one."""

    async def is_valid(self, principal_id: str, session: str | None = None) -> bool:
        """Whether the token of this principal, or its session if given, is still valid.

        Streams and long polls check it while they are open.
        """


class OpenAccess:
    """Full access without a token, for a server on loopback that was started with --insecure."""

    def __init__(self) -> None:
        self.on_wrong_token: Callable[[], None] = lambda: None

    tokens = None

    async def authenticate(self, request: Request) -> Principal | None:
        return OWNER

    async def is_valid(self, principal_id: str, session: str | None = None) -> bool:
        return True


class Dependencies:
    def __init__(
        self,
        store: Store,
        job_factory: JobFactory,
        authenticator: Authenticator,
        settings: ServerSection | None = None,
        shortest_interval_seconds: float = SHORTEST_INTERVAL_SECONDS,
    ) -> None:
        self.store = store
        self.job_factory = job_factory
        self.authenticator = authenticator
        self.settings = settings or ServerSection()
        self.operations = LocalOperations(
            store,
            lambda: job_factory,
            shortest_interval_seconds=shortest_interval_seconds,
            # Those of the authenticator, so that a revocation clears its cache at once.
            tokens=authenticator.tokens,
            audit=Audit(store, self.settings.audit_keep),
            make_workflows=lambda: self.workflows,
        )
        self.known_queues = KnownQueues(store, (kind.queue for kind in job_factory.kinds() or ()))
        self.workflows = WorkflowCatalog()  # the workflow files that callers may run
        self.sandboxes = Sandboxes(store)
        self.bounds = Bounds()  # upper limits of what a program may use
        self.rejects_without_sandbox = False  # programs, with 503; otherwise they wait for a sandbox
        self.webhook_secret: str | None = None  # signs the webhooks of programs that bring no secret of their own
        self.webhooks_to_private = False
        self.open_requests = OpenRequestLimit()
        self.draining = asyncio.Event()  # set when the server stops: streams end, and /readyz fails
        self.health = Health(store, self.draining.is_set)
        self._store_watch = StoreWatch(self.health)
        self.exporter = MetricsExporter(store, Metrics())
        self.runners: RunnerServices | None = None  # set if GitHub runners are configured
        self.exporter.sources.append(self._runner_gauges)
        authenticator.on_wrong_token = self.exporter.metrics.token_rejected
        self.broadcaster = Broadcaster(store, self.draining, authenticator.is_valid)
        self.publisher = LiveEventPublisher(store, self.broadcaster.name)
        self.configuration: tuple[ConfigurationItem, ...] = ()  # as the command line shows it
        self.bulk_operations = BulkOperations(store, self.operations, self.changed_many)
        self.charts = Charts(store)
        self.overview = Overview(store, self.charts)
        self.broadcaster.read_stats = self.overview.stats
        self._chart_writer = ChartWriter(store, gauges=self.chart_gauges)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Run the background tasks of the server."""
        await self.publisher.start()
        await self._chart_writer.start()
        await self.bulk_operations.start()
        await self._store_watch.start()
        try:
            yield
        finally:
            await self._store_watch.stop()
            await self.bulk_operations.stop()
            await self._chart_writer.stop()
            await self.publisher.stop()

    async def chart_gauges(self, chart_range: ChartRange, interval: Instant) -> dict[str, Gauge] | None:
        """The lengths of the queues for the chart history; None if another server has written them."""
        if await self.charts.measured(chart_range, interval):
            return None
        return longest_queues({info.name: Gauge(info.waiting, info.running) for info in await self.store.queues()})

    async def _runner_gauges(self) -> bytes:
        return b"" if self.runners is None else await gauges_text(self.runners.queries)

    def enqueued(self, job: NewJob | Job) -> None:
        """Count a job that was stored by this server, and publish its event."""
        self.exporter.metrics.enqueued(job.queue, job.kind)
        if self.publisher.wants_each_job:
            kind, state = LiveEventType.ENQUEUED, State.PENDING
            event = LiveEvent(type=kind, state=state, job_id=job.id, kind=job.kind, queue=job.queue, group=job.group)
            self.publisher.publish(event)

    def changed(self, job: Job) -> None:
        """Publish a change to a job that no worker runs; a worker publishes the events of its own jobs."""
        if self.publisher.wants_each_job and job.state is not State.RUNNING:
            self.publisher.publish(live_event_of(job))

    def changed_many(self) -> None:
        """Publish one event that makes subscribers reload, instead of one per job."""
        self.publisher.publish(LiveEvent(type=LiveEventType.RESYNC))
