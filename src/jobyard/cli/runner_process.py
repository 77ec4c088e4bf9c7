"""The process of `jobyard runners manager`: reconciles and launches runners; webhooks arrive at a server elsewhere."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from jobyard.app.jobyard import Jobyard
from jobyard.app.runners import SHUTDOWN_SECONDS, RunnerManagerProcess, build_services
from jobyard.cli.commands.scheduler import require_shared_store
from jobyard.cli.commands.worker import health_server, run_loop
from jobyard.cli.server_process import STOP_SECONDS, Signals
from jobyard.cli.session import Session
from jobyard.errors import ConfigurationError
from jobyard.github.services import RunnerServices

if TYPE_CHECKING:
    from jobyard.app.health_server import WorkerHealth
    from jobyard.github.metrics import RunnerMetrics


def run_manager(session: Session, health_host: str, health_port: int | None) -> None:
    """Run until SIGTERM or SIGINT. Any number of managers may run at the same time."""
    if not session.configuration.runners.is_configured:
        raise ConfigurationError("No runner profiles are configured. Set runners.profiles in jobyard.yaml.")
    yard = session.yard()
    session.set_up_logs("info", everything=True)
    health = None if health_port is None else health_server(yard, health_host, health_port)
    run_loop(_run(session, yard, health))


async def _run(session: Session, yard: Jobyard, health: WorkerHealth | None) -> None:
    async with session.opened(yard), contextlib.AsyncExitStack() as beside:
        require_shared_store(yard)
        services = build_services(session.configuration.runners, yard.store)
        await services.github.start()
        beside.push_async_callback(services.github.stop)
        metrics = None if health is None else _metrics(health, services)
        manager = RunnerManagerProcess(yard, session.configuration.runners, services, metrics=metrics)
        signals = Signals([manager], lambda: session.notify.stopping(SHUTDOWN_SECONDS + STOP_SECONDS))
        if health is not None:
            await beside.enter_async_context(health.serving(manager.worker, signals.is_asked))
        async with session.notify.pinging():
            session.notify.ready(f"{manager.worker.id}: managing runners of {yard.store.url}")
            await manager.run()


def _metrics(health: WorkerHealth, services: RunnerServices) -> RunnerMetrics:
    from jobyard.github.metrics import RunnerMetrics, gauges_text  # noqa: PLC0415  # its package is an extra

    metrics = RunnerMetrics(health.metrics.registry)
    metrics.attach_ingest(services.ingest)
    health.gauges.append(lambda: gauges_text(services.queries))
    return metrics
