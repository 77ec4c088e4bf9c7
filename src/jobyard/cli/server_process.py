"""The process of `jobyard server` and `jobyard up`: start, announce, handle signals, stop with its workers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import click
import msgspec

from jobyard.api.schemas.charts import ConfigurationItem
from jobyard.api.schemas.events import CheckView
from jobyard.app.declarations import job_factory
from jobyard.app.jobyard import Jobyard
from jobyard.app.process_manager import SLACK_SECONDS, Supervisor
from jobyard.app.runners import RunnerManagerProcess, build_services
from jobyard.app.sandbox import enable_sandbox
from jobyard.app.scheduling import Scheduling
from jobyard.app.tracing import make_tracing
from jobyard.cli.commands.config import DEFAULT, every_value
from jobyard.cli.commands.scheduler import declare_schedules, require_shared_store
from jobyard.cli.commands.worker import require_packages, run_loop
from jobyard.cli.option_flags import settings_given
from jobyard.cli.session import Session
from jobyard.config.keys import SECTIONS
from jobyard.config.sections import ServerSection
from jobyard.config.settings import ADMIN_TOKEN
from jobyard.config.store_url import shown
from jobyard.domain.text import counted
from jobyard.observability.composite import CompositeObserver
from jobyard.observability.notifications import Notifier
from jobyard.operations.alerts import AlertSettings, AlertWatcher
from jobyard.operations.secrets import secret
from jobyard.operations.store_risks import warn_of_risks
from jobyard.operations.workflow_catalog import WorkflowCatalog
from jobyard.ports.store import Store

if TYPE_CHECKING:
    from jobyard.github.metrics import RunnerMetrics
    from jobyard.server.bootstrap import Access
    from jobyard.server.server import Server

log = logging.getLogger("jobyard.server")

# What a stop may take beyond the shutdown timeouts.
STOP_SECONDS = 5.0


class UpOptions(NamedTuple):
    """What `jobyard up` runs beside the server."""

    supervisor: Supervisor | None  # None: no worker processes
    worker_options: dict[str, Any]
    summary: str  # for the greeting
    has_scheduler: bool = False
    has_sandbox: bool = False
    has_runners: bool = False


class Stoppable(Protocol):
    """A part of the process that runs until it is stopped."""

    def stop(self) -> None: ...
    def force_stop(self) -> None: ...


def start(
    session: Session,
    host: str,
    port: int,
    web: Mapping[str, str | None],
    *,
    insecure: bool,
    up: UpOptions | None = None,
) -> None:
    """`web`: further options of the server, by the names of their keys."""
    keys = SECTIONS["server"]
    given = {name: keys[name].check(f"server.{name}", value) for name, value in web.items() if value}
    section = msgspec.structs.replace(session.configuration.server, **given)
    yard = session.yard()
    if up is not None and up.has_sandbox:
        enable_sandbox(yard, session.configuration.sandbox, up.worker_options["concurrency"])
    session.set_up_logs("info", everything=True)
    workflows = session.workflow_catalog(yard, logs=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    require_packages("The server")
    from jobyard.server.server import listen, require_certificate  # noqa: PLC0415  # its packages are an extra

    require_certificate(section)
    with listen(host, port) as listener:
        run_loop(_run(session, yard, listener, section, up, workflows, insecure=insecure))


async def _run(
    session: Session,
    yard: Jobyard,
    listener: socket.socket,
    section: ServerSection,
    up: UpOptions | None,
    workflows: WorkflowCatalog,
    *,
    insecure: bool,
) -> None:
    from jobyard.server.bootstrap import bootstrap_access  # noqa: PLC0415
    from jobyard.server.server import Server  # noqa: PLC0415

    urls = session.configuration.alerts.urls
    notifier = Notifier(urls) if urls else None
    async with session.opened(yard), contextlib.AsyncExitStack() as beside:
        if up is not None:
            require_runnable_workers(yard, up)
        if up is not None and up.has_scheduler:
            await declare_schedules(session, yard)
        access = await bootstrap_access(
            yard.store,
            listener,
            section,
            insecure=insecure,
            shows_first=not session.notify.is_active,
            admin_token=secret(ADMIN_TOKEN.variable, os.environ),
        )
        await warn_of_risks(yard.store)
        if access.is_open:
            log.warning("started with --insecure: every user of this machine has full access")
        make = job_factory(yard, has_app=session.app_name is not None)
        shortest = session.configuration.scheduler.shortest_interval_seconds
        server = Server(yard.store, make, access, section, request_spans(session), shortest)
        server.dependencies.workflows = workflows
        server.dependencies.health.more.append(functools.partial(workflow_check, workflows))
        apply_configuration(session, server)
        runner_metrics = await runner_services(session, yard, server, beside)
        server.dependencies.health.needs_workers = up is not None and up.supervisor is not None
        server.dependencies.health.has_sandbox = up is not None and up.has_sandbox
        await beside.enter_async_context(watching_alerts(yard.store, notifier, session.configuration.alerts))
        parts: list[Stoppable] = [server]
        running = [asyncio.ensure_future(server.run(listener))]
        is_healthy: Callable[[], bool] = lambda: True  # noqa: E731
        if up is not None and up.supervisor is not None:
            from jobyard.app.worker_metrics import add_report  # noqa: PLC0415

            up.supervisor.on_report = functools.partial(add_report, server.dependencies.exporter.metrics)
            parts.append(up.supervisor)
            running.append(asyncio.ensure_future(up.supervisor.run()))
        if up is not None and up.has_scheduler:
            scheduling = Scheduling(yard, CompositeObserver(yard.observer, server.dependencies.exporter.metrics))
            parts.append(scheduling)
            running.append(asyncio.ensure_future(scheduling.run()))
            is_healthy = scheduling.is_alive
        if up is not None and up.has_runners and server.dependencies.runners is not None:
            runners, services = session.configuration.runners, server.dependencies.runners
            manager = RunnerManagerProcess(yard, runners, services, metrics=runner_metrics)
            server.dependencies.health.worker = manager.worker
            parts.append(manager)
            running.append(asyncio.ensure_future(manager.run()))
        signals = Signals(parts, lambda: session.notify.stopping(longest_stop(section, up)))
        async with session.notify.pinging(is_healthy):
            await until_stopped(session, yard, server.url(listener), access, up, server, running, listener)
            signals.stop()
            await asyncio.gather(*running)
    log.info("stopped")


def workflow_check(workflows: WorkflowCatalog) -> CheckView:
    """Never a reason to send no requests here. Names no files: everybody may read it."""
    number = len(workflows.invalid)
    reason = f"{counted(number, 'workflow file')} not loaded: jobyard workflows check says why." if number else ""
    return CheckView(name="workflow_files", ok=True, reason=reason)


def apply_configuration(session: Session, server: Server) -> None:
    dependencies, sandbox = server.dependencies, session.configuration.sandbox
    flags = settings_given(click.get_current_context())
    values = {each.key: (each.origin, each.value) for each in every_value(session.found)} | flags
    if values["store.url"][0] == DEFAULT and values["store.url"][1] != dependencies.store.url:
        values["store.url"] = ("application", dependencies.store.url)
    dependencies.configuration = tuple(
        ConfigurationItem(key=key, value=value, origin=origin) for key, (origin, value) in values.items()
    )
    dependencies.bounds = sandbox.bounds
    dependencies.rejects_without_sandbox = sandbox.reject_when_unavailable
    dependencies.webhook_secret = sandbox.webhook_secret
    dependencies.webhooks_to_private = sandbox.webhooks_to_private


async def runner_services(
    session: Session, yard: Jobyard, server: Server, beside: contextlib.AsyncExitStack
) -> RunnerMetrics | None:
    """Let the server receive events of GitHub and answer queries on runners, if profiles are configured."""
    from jobyard.github.metrics import RunnerMetrics  # noqa: PLC0415  # its package is an extra

    section = session.configuration.runners
    if not section.is_configured:
        return None
    services = build_services(section, yard.store)
    await services.github.start()
    beside.push_async_callback(services.github.stop)
    server.dependencies.runners = services
    metrics = RunnerMetrics(server.dependencies.exporter.metrics.registry)
    metrics.attach_ingest(services.ingest)
    return metrics


@contextlib.asynccontextmanager
async def watching_alerts(store: Store, notifier: Notifier | None, settings: AlertSettings) -> AsyncIterator[None]:
    if notifier is None:
        yield
        return
    watcher = AlertWatcher(store, settings, notifier.send)
    await watcher.start()
    try:
        yield
    finally:
        await watcher.stop()


def longest_stop(section: ServerSection, up: UpOptions | None) -> float:
    of_workers = 0.0 if up is None else float(up.worker_options["shutdown_timeout"]) + SLACK_SECONDS
    return max(section.lame_duck_seconds + section.shutdown_timeout, of_workers) + STOP_SECONDS


async def until_stopped(
    session: Session,
    yard: Jobyard,
    url: str,
    access: Access,
    up: UpOptions | None,
    server: Server,
    running: Sequence[asyncio.Task[None]],
    listener: socket.socket,
) -> None:
    """Announce the server once it is ready, then wait until the first part ends, by a signal or by an error."""
    ready: asyncio.Task[Any] = asyncio.ensure_future(server.ready.wait())
    await asyncio.wait([ready, *running], return_when=asyncio.FIRST_COMPLETED)
    if ready.done():
        from jobyard.server.bootstrap import login_link  # noqa: PLC0415

        link = None if session.notify.is_active else await login_link(access, listener)
        announce(session, yard, url, access, "API only" if up is None else up.summary, link)
        if warning := server.dependencies.workflows.warning:
            session.echo(warning)
            sys.stdout.flush()
    ready.cancel()
    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)


def require_runnable_workers(yard: Jobyard, up: UpOptions) -> None:
    """Reject invalid worker options here: otherwise each worker process would exit as soon as it starts."""
    require_shared_store(yard)
    yard.worker(**up.worker_options)


def announce(session: Session, yard: Jobyard, url: str, access: Access, summary: str, link: str | None = None) -> None:
    """`link` is the path of a one-time login."""
    from jobyard.cli.render.greeting import greeting, try_next  # noqa: PLC0415

    session.notify.ready(f"{url}, {summary}")
    log.info("up at %s: %s; store %s", url, summary, yard.store.url)
    if session.notify.is_active:  # output ends up in the journal, so no secret is printed
        return
    if session.as_json:
        commands = try_next(url, yard, is_open=access.is_open)
        login = None if link is None else url + link
        session.print_json({"url": url, "token": access.first_token, "login": login, "try": commands})
    own = {queue: shown(each) for queue, each in session.configuration.store.queues.items()}
    for line in greeting(url, yard, access, summary, own, link):
        session.echo(line)
    sys.stdout.flush()


def request_spans(session: Session) -> Callable[[Any], Any] | None:
    tracing = session.configuration.tracing
    if not tracing.enabled:
        return None
    from jobyard.server.tracing import TracingMiddleware  # noqa: PLC0415  # an extra

    return lambda app: TracingMiddleware(app, make_tracing(as_link=tracing.as_link))


class Signals:
    """First SIGTERM or SIGINT: drain. Second: stop at once."""

    def __init__(self, parts: Sequence[Stoppable], on_stop: Callable[[], None]) -> None:
        self._parts = parts
        self._on_stop = on_stop
        self._is_stopping = False
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received)

    def _received(self) -> None:
        if self._is_stopping:
            log.warning("second signal: stopping at once")
            for part in self._parts:
                part.force_stop()
        else:
            log.info("stopping: no new connections; requests and jobs may finish")
            self.stop()

    def is_asked(self) -> bool:
        return self._is_stopping

    def stop(self) -> None:
        if not self._is_stopping:
            self._on_stop()
        self._is_stopping = True
        for part in self._parts:
            part.stop()
