"""The process of `jobyard server` and `jobyard up`: start, announce, handle signals, stop with its workers."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from jobyard.app.declarations import job_factory
from jobyard.app.jobyard import Jobyard
from jobyard.app.process_manager import SLACK_SECONDS, Supervisor
from jobyard.app.sandbox import enable_sandbox
from jobyard.app.scheduling import Scheduling
from jobyard.app.tracing import make_tracing
from jobyard.cli.commands.scheduler import declare_schedules, require_shared_store
from jobyard.cli.commands.worker import require_packages, run_loop
from jobyard.cli.session import Session
from jobyard.config.keys import SECTIONS
from jobyard.config.sections import ServerSection
from jobyard.config.store_url import shown
from jobyard.observability.composite import CompositeObserver

if TYPE_CHECKING:
    from jobyard.server.bootstrap import Access
    from jobyard.server.server import Server

log = logging.getLogger("jobyard.server")

# What a stop may take beyond the shutdown timeouts.
STOP_SECONDS = 5.0


class UpOptions(NamedTuple):
    """What `jobyard up` runs beside the server."""

    supervisor: Supervisor
    worker_options: dict[str, Any]
    summary: str  # for the greeting
    has_scheduler: bool = False
    has_sandbox: bool = False


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
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    require_packages("The server")
    from jobyard.server.server import listen, require_certificate  # noqa: PLC0415  # its packages are an extra

    require_certificate(section)
    with listen(host, port) as listener:
        run_loop(_run(session, yard, listener, section, up, insecure=insecure))


async def _run(
    session: Session,
    yard: Jobyard,
    listener: socket.socket,
    section: ServerSection,
    up: UpOptions | None,
    *,
    insecure: bool,
) -> None:
    from jobyard.server.bootstrap import bootstrap_access  # noqa: PLC0415
    from jobyard.server.server import Server  # noqa: PLC0415

    async with session.opened(yard):
        if up is not None:
            require_runnable_workers(yard, up)
        if up is not None and up.has_scheduler:
            await declare_schedules(session, yard)
        access = await bootstrap_access(
            yard.store, listener, section, insecure=insecure, shows_first=not session.notify.is_active
        )
        if access.is_open:
            log.warning("started with --insecure: every user of this machine has full access")
        make = job_factory(yard, has_app=session.app_name is not None)
        shortest = session.configuration.scheduler.shortest_interval_seconds
        server = Server(yard.store, make, access, section, request_spans(session), shortest)
        server.dependencies.bounds = session.configuration.sandbox.bounds
        server.dependencies.rejects_without_sandbox = session.configuration.sandbox.reject_when_unavailable
        server.dependencies.health.needs_workers = up is not None
        server.dependencies.health.has_sandbox = up is not None and up.has_sandbox
        parts: list[Stoppable] = [server]
        running = [asyncio.ensure_future(server.run(listener))]
        is_healthy: Callable[[], bool] = lambda: True  # noqa: E731
        if up is not None:
            parts.append(up.supervisor)
            running.append(asyncio.ensure_future(up.supervisor.run()))
        if up is not None and up.has_scheduler:
            scheduling = Scheduling(yard, CompositeObserver(yard.observer, server.dependencies.exporter.metrics))
            parts.append(scheduling)
            running.append(asyncio.ensure_future(scheduling.run()))
            is_healthy = scheduling.is_alive
        signals = Signals(parts, lambda: session.notify.stopping(longest_stop(section, up)))
        async with session.notify.pinging(is_healthy):
            await until_stopped(session, yard, server.url(listener), access, up, server, running)
            signals.stop()
            await asyncio.gather(*running)
    log.info("stopped")


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
) -> None:
    """Announce the server once it is ready, then wait until the first part ends, by a signal or by an error."""
    ready: asyncio.Task[Any] = asyncio.ensure_future(server.ready.wait())
    await asyncio.wait([ready, *running], return_when=asyncio.FIRST_COMPLETED)
    if ready.done():
        announce(session, yard, url, access, "API only" if up is None else up.summary)
    ready.cancel()
    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)


def require_runnable_workers(yard: Jobyard, up: UpOptions) -> None:
    """Reject invalid worker options here: otherwise each worker process would exit as soon as it starts."""
    require_shared_store(yard)
    yard.worker(**up.worker_options)


def announce(session: Session, yard: Jobyard, url: str, access: Access, summary: str) -> None:
    from jobyard.cli.render.greeting import greeting, try_next  # noqa: PLC0415

    session.notify.ready(f"{url}, {summary}")
    if session.notify.is_active:
        # Output ends up in the journal, so no secret is printed.
        log.info("up at %s (%s; %s)", url, yard.store.url, summary)
        return
    if session.as_json:
        commands = try_next(url, yard, is_open=access.is_open)
        session.print_json({"url": url, "token": access.first_token, "try": commands})
    own = {queue: shown(each) for queue, each in session.configuration.store.queues.items()}
    for line in greeting(url, yard, access, summary, own):
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

    def stop(self) -> None:
        if not self._is_stopping:
            self._on_stop()
        self._is_stopping = True
        for part in self._parts:
            part.stop()
