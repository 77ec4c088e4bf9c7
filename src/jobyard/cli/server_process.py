"""A server from its start to its end: opened, announced, told to stop, and stopped with its workers."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jobyard.app.jobyard import Jobyard
from jobyard.app.process_manager import SLACK_SECONDS, Supervisor
from jobyard.app.sandbox import enable_sandbox
from jobyard.app.scheduling import Scheduling
from jobyard.app.tracing import make_tracing
from jobyard.cli.commands.worker import require_packages, run_loop
from jobyard.cli.declared_schedules import declare_schedules, require_shared
from jobyard.cli.session import Session
from jobyard.config.sections import ServerSection
from jobyard.config.store_url import shown
from jobyard.observability.composite import CompositeObserver
from jobyard.operations.schedules import Schedules

if TYPE_CHECKING:
    from jobyard.server.bootstrap import Entry
    from jobyard.server.server import Server

log = logging.getLogger("jobyard.server")

# What a stop may take beyond the times for finishing.
END_SECONDS = 5.0


class Crew(NamedTuple):
    """The workers of `jobyard up`, and whether it has a scheduler."""

    supervisor: Supervisor
    options: dict[str, Any]  # of each of them
    shown: str
    has_scheduler: bool = False
    has_sandbox: bool = False


class Part(Protocol):
    """What runs until it is told to stop."""

    def stop(self) -> None: ...

    def hurry(self) -> None: ...


def start(session: Session, host: str, port: int, *, insecure: bool, crew: Crew | None = None) -> None:
    yard = session.yard()
    if crew is not None and crew.has_sandbox:
        enable_sandbox(yard, session.configuration.sandbox, crew.options["concurrency"])
    session.set_up_logs("info", everything=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    require_packages("The server")
    from jobyard.server.server import listen  # noqa: PLC0415  # its packages are an extra

    with listen(host, port) as listener:
        run_loop(_run(session, yard, listener, crew, insecure=insecure))


async def _run(session: Session, yard: Jobyard, listener: socket.socket, crew: Crew | None, *, insecure: bool) -> None:
    from jobyard.app.job_factory import make_job  # noqa: PLC0415
    from jobyard.server.bootstrap import entry  # noqa: PLC0415
    from jobyard.server.server import Server, settings_of  # noqa: PLC0415

    section = session.configuration.server
    async with session.opened(yard):
        if crew is not None:
            require_fit(yard, crew)
        if crew is not None and crew.has_scheduler:
            await declare_schedules(session, yard)
        who = await entry(
            yard.store, listener, settings_of(section), insecure=insecure, shows_first=not session.notify.is_heard
        )
        if who.is_open:
            log.warning("started with --insecure: everybody on this machine may do everything")
        make = make_job(yard, has_app=session.app_name is not None)
        server = Server(yard.store, make, who, section, request_spans(session))
        server.dependencies.schedules = Schedules(yard.store, session.configuration.scheduler.shortest_interval_seconds)
        server.dependencies.bounds = session.configuration.sandbox.bounds
        server.dependencies.health.needs_workers = crew is not None
        server.dependencies.health.has_sandbox = crew is not None and crew.has_sandbox
        parts: list[Part] = [server]
        running = [asyncio.ensure_future(server.run(listener))]
        turns = always
        if crew is not None:
            parts.append(crew.supervisor)
            running.append(asyncio.ensure_future(crew.supervisor.run()))
        if crew is not None and crew.has_scheduler:
            scheduling = Scheduling(yard, CompositeObserver(yard.observer, server.dependencies.exporter.metrics))
            parts.append(scheduling)
            running.append(asyncio.ensure_future(scheduling.run()))
            turns = scheduling.is_turning
        signals = Signals(parts, lambda: session.notify.stopping(longest_stop(section, crew)))
        async with session.notify.alive(turns):
            await until_stopped(session, yard, listener, who, crew, server, running)
            signals.stop()
            await asyncio.gather(*running)
    log.info("stopped")


def always() -> bool:
    return True


def longest_stop(section: ServerSection, crew: Crew | None) -> float:
    of_crew = 0.0 if crew is None else float(crew.options["shutdown_timeout"]) + SLACK_SECONDS
    return max(section.lame_duck_seconds + section.shutdown_timeout, of_crew) + END_SECONDS


async def until_stopped(
    session: Session,
    yard: Jobyard,
    listener: socket.socket,
    who: Entry,
    crew: Crew | None,
    server: Server,
    running: Sequence[asyncio.Task[None]],
) -> None:
    """Announces it once it is ready. Whichever part ends first by itself, by a fault, takes the others with it."""
    ready: asyncio.Task[Any] = asyncio.ensure_future(server.ready.wait())
    await asyncio.wait([ready, *running], return_when=asyncio.FIRST_COMPLETED)
    if ready.done():
        announce(session, yard, listener, who, "API only" if crew is None else crew.shown)
    ready.cancel()
    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)


def require_fit(yard: Jobyard, crew: Crew) -> None:
    """With what no worker can use, each process would end as soon as it starts."""
    require_shared(yard)
    yard.worker(**crew.options)


def announce(session: Session, yard: Jobyard, listener: socket.socket, who: Entry, doing: str) -> None:
    from jobyard.cli.render.welcome import greeting, try_next  # noqa: PLC0415
    from jobyard.server.server import url_of  # noqa: PLC0415

    url = url_of(listener)
    session.notify.ready(f"{url}, {doing}")
    if session.notify.is_heard:
        # Nobody sits before it, and what is printed stays in a journal: no secret goes there.
        log.info("up at %s (%s; %s)", url, yard.store.url, doing)
        return
    if session.as_json:
        session.print_json({"url": url, "token": who.first_token, "try": try_next(url, yard, is_open=who.is_open)})
    own = {queue: shown(each) for queue, each in session.configuration.store.queues.items()}
    for line in greeting(url, yard, who, doing, own):
        session.say(line)
    sys.stdout.flush()


def request_spans(session: Session) -> Callable[[Any], Any] | None:
    tracing = session.configuration.tracing
    if not tracing.enabled:
        return None
    from jobyard.server.tracing import TracingMiddleware  # noqa: PLC0415  # an extra

    return lambda app: TracingMiddleware(app, make_tracing(as_link=tracing.as_link))


class Signals:
    """First signal: drain. Second: at once."""

    def __init__(self, parts: Sequence[Part], tell: Callable[[], None]) -> None:
        self._parts = parts
        self._tell = tell
        self._asked = False
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ask)

    def _ask(self) -> None:
        if self._asked:
            log.warning("asked twice: ending at once")
            for part in self._parts:
                part.hurry()
        else:
            log.info("asked to stop: no more connections, what runs may finish")
            self.stop()

    def stop(self) -> None:
        if not self._asked:
            self._tell()
        self._asked = True
        for part in self._parts:
            part.stop()
