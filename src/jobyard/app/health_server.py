"""Health and metrics endpoints of a worker or scheduler. They need no token: keep the port private."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from jobyard.app.jobyard import Jobyard
from jobyard.app.worker_metrics import WorkerMetrics
from jobyard.errors import ConfigurationError
from jobyard.operations.health import Health
from jobyard.server.bind_errors import bind_problem
from jobyard.server.health_app import serving_health
from jobyard.server.prometheus import MetricsExporter
from jobyard.worker.worker import Worker


class WorkerHealth:
    """The health server of a worker or scheduler."""

    def __init__(self, yard: Jobyard, measured: WorkerMetrics, host: str, port: int) -> None:
        self._yard = yard
        self._host = host
        self._port = port
        self.metrics = measured.metrics
        self._measured = measured
        self.gauges: list[Callable[[], Awaitable[bytes]]] = []  # further ones, read with each scrape

    @asynccontextmanager
    async def serving(self, worker: Worker | None, is_stopping: Callable[[], bool]) -> AsyncIterator[None]:
        health = Health(self._yard.store, is_stopping, worker)
        sandbox = self._yard.sandbox
        if sandbox is not None and sandbox.latest is not None:
            health.more.append(sandbox.latest.check)
        scrape = MetricsExporter(self._yard.store, self.metrics)
        scrape.sources += self.gauges
        async with AsyncExitStack() as stack:
            await self._measured.start()
            stack.push_async_callback(self._measured.stop)
            try:
                await stack.enter_async_context(serving_health(health, scrape, self._host, self._port))
            except OSError as error:
                problem = bind_problem(error, self._port, "--health-port")
                raise ConfigurationError(
                    f"Cannot serve health on {self._host}, port {self._port}: {problem}"
                ) from error
            yield
