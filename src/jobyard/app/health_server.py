"""Health and metrics endpoints of a worker or scheduler. They need no token: keep the port private."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from jobyard.app.jobyard import Jobyard
from jobyard.errors import ConfigurationError
from jobyard.observability.composite import CompositeObserver
from jobyard.observability.metrics import Metrics
from jobyard.observability.wait_times import WaitTimeSampler
from jobyard.operations.health import Health
from jobyard.server.health_app import serving_health
from jobyard.server.prometheus import MetricsExporter
from jobyard.worker.worker import Worker


class WorkerHealth:
    """The health server of a worker or scheduler. Make it first, so that it observes all events."""

    def __init__(self, yard: Jobyard, host: str, port: int) -> None:
        self._yard = yard
        self._host = host
        self._port = port
        self._metrics = Metrics()
        self._waits = WaitTimeSampler(self._metrics)
        yard.observer = CompositeObserver(yard.observer, self._metrics, self._waits)

    @asynccontextmanager
    async def serving(self, worker: Worker | None, is_stopping: Callable[[], bool]) -> AsyncIterator[None]:
        health = Health(self._yard.store, is_stopping, worker)
        sandbox = self._yard.sandbox
        if sandbox is not None and sandbox.latest is not None:
            health.more.append(sandbox.latest.check)
        scrape = MetricsExporter(self._yard.store, self._metrics)
        async with AsyncExitStack() as stack:
            await self._waits.start(self._yard.store)
            stack.push_async_callback(self._waits.stop)
            try:
                await stack.enter_async_context(serving_health(health, scrape, self._host, self._port))
            except OSError as error:
                raise ConfigurationError(
                    f"Cannot serve health on {self._host}, port {self._port}: {error.strerror}. "
                    "Choose another port with --health-port."
                ) from error
            yield
