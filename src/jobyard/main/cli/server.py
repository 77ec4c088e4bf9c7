"""`jobyard server` and `jobyard up`: the API, alone or with workers that are kept running."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from jobyard.errors import ConfigurationError
from jobyard.main.cli.session import Session, json_option
from jobyard.main.cli.worker import run_loop, worker_options
from jobyard.main.config.shape import ServerSection
from jobyard.main.settings import CONFIG, HOST, PORT, PROCESSES, SETTINGS
from jobyard.main.supervise import Supervisor
from jobyard.main.tracing import make_tracing
from jobyard.main.yard import Jobyard

if TYPE_CHECKING:
    from jobyard.main.serve import Server

log = logging.getLogger("jobyard.server")

Command = Callable[..., Any]


def server_options(command: Command) -> Command:
    for option in (
        click.option("--insecure", is_flag=True, help="Let everybody in, without tokens; on loopback only."),
        click.option(
            "--port", type=click.IntRange(0, 65535), envvar=PORT.variable, default=PORT.default, help=PORT.doc,
            show_default=True,
        ),
        click.option("--host", envvar=HOST.variable, default=HOST.default, help=HOST.doc, show_default=True),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command()
@server_options
@json_option
@click.pass_obj
def server(session: Session, host: str, port: int, insecure: bool) -> None:
    """Serve the API, without workers.

    With an app it takes the kinds that this declares and checks their payloads; without one, any kind. On loopback the
    first start makes a token and prints it once. SIGTERM or Ctrl-C: no more connections, streams end, requests finish;
    exit code 0. A second signal ends at once.

    \b
    Example:
      jobyard --app shop.jobs:yard server --port 8080
    """
    start(session, host, port, insecure=insecure)


@click.command()
@server_options
@worker_options
@click.option(
    "--processes",
    type=click.IntRange(1, 1000),
    envvar=PROCESSES.variable,
    default=PROCESSES.default,
    help=PROCESSES.doc,
    show_default=True,
)
@json_option
@click.pass_obj
def up(session: Session, /, host: str, port: int, insecure: bool, processes: int, **worker: Any) -> None:
    """Serve the API and keep workers running.

    The workers are processes of their own; one that dies is replaced. SIGTERM or Ctrl-C drains all of it and ends with
    exit code 0; a second signal does so at once.

    \b
    Example:
      jobyard --app shop.jobs:yard up --concurrency 8 --processes 2
    """
    if session.app_name is None:
        session.app()
    environment = child_environment(session, os.environ)
    supervisor = Supervisor(
        child_command(worker), environment, processes, shutdown_seconds=float(worker["shutdown_timeout"])
    )
    start(
        session,
        host,
        port,
        insecure=insecure,
        supervisor=supervisor,
        workers=f"{processes} worker process{'es' if processes > 1 else ''}",
    )


def child_command(worker: Mapping[str, Any]) -> list[str]:
    words = [sys.executable, "-m", "jobyard", "worker", "--until-input-ends"]
    for word in ("concurrency", "lease_seconds", "shutdown_timeout"):
        words += [f"--{word.replace('_', '-')}", str(worker[word])]
    for queue in worker["queues"]:
        words += ["--queue", queue]
    return words


def child_environment(session: Session, environment: Mapping[str, str]) -> dict[str, str]:
    """What was given as a flag goes on as a variable: a URL may hold a password, and everybody sees command lines."""
    told = dict(environment)
    if session.found.file is not None:
        told[CONFIG.variable] = str(session.found.file.resolve())
    for setting in SETTINGS:
        given = session.found.given.get(tuple(setting.key.split(".")))
        if given is not None and given.origin == setting.flag:
            told[setting.variable] = str(given.value)
    return told


def start(
    session: Session, host: str, port: int, *, insecure: bool, supervisor: Supervisor | None = None, workers: str = ""
) -> None:
    yard = session.yard()
    session.set_up_logs("info", everything=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    require_packages()
    from jobyard.main.serve import listen  # noqa: PLC0415  # its packages are an extra

    listener = listen(host, port)
    with listener:
        run_loop(_run(session, yard, listener, insecure=insecure, supervisor=supervisor, workers=workers))


def require_packages() -> None:
    try:
        import fastapi  # noqa: F401, PLC0415
        import httptools  # noqa: F401, PLC0415
        import uvicorn  # noqa: F401, PLC0415
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"The server needs the Python package {error.name}, which is not installed. "
            "Install it with: pip install 'jobyard[server]'"
        ) from error


async def _run(
    session: Session,
    yard: Jobyard,
    listener: socket.socket,
    *,
    insecure: bool,
    supervisor: Supervisor | None,
    workers: str,
) -> None:
    from jobyard.main.cli.greeting import greeting, try_next  # noqa: PLC0415
    from jobyard.main.entry import entry  # noqa: PLC0415
    from jobyard.main.handing_in import make_job  # noqa: PLC0415
    from jobyard.main.serve import Server, settings_of, url_of  # noqa: PLC0415

    section: ServerSection = session.configuration.server
    async with session.opened(yard):
        if supervisor is not None and yard.store.url.startswith("memory:"):
            raise ConfigurationError(
                "memory:// lives in one process, and workers are others. Name a store that they share: --store "
                "sqlite:///jobs.db"
            )
        who = await entry(yard.store, listener, settings_of(section), insecure=insecure)
        if who.is_open:
            log.warning("started with --insecure: everybody on this machine may do everything")
        make = make_job(yard, has_app=session.app_name is not None)
        server = Server(yard.store, make, who, section, request_spans(session))
        signals = Signals(server, supervisor)
        running = [asyncio.ensure_future(server.run(listener))]
        if supervisor is not None:
            running.append(asyncio.ensure_future(supervisor.run()))
        ready = asyncio.ensure_future(server.ready.wait())
        await asyncio.wait([ready, *running], return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            url = url_of(listener)
            if session.as_json:
                session.print_json(
                    {"url": url, "token": who.first_token, "try": try_next(url, yard, is_open=who.is_open)}
                )
            for line in greeting(url, yard, who, workers or "API only"):
                session.say(line)
            sys.stdout.flush()
        ready.cancel()
        # Whichever ends first by itself, by a fault, takes the other with it.
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        signals.stop()
        await asyncio.gather(*running)
    log.info("stopped")


def request_spans(session: Session) -> Callable[[Any], Any] | None:
    tracing = session.configuration.tracing
    if not tracing.enabled:
        return None
    from jobyard.doors.http.traced import Traced  # noqa: PLC0415  # an extra

    return lambda app: Traced(app, make_tracing(as_link=tracing.as_link))


class Signals:
    """First signal: drain. Second: at once."""

    def __init__(self, server: Server, supervisor: Supervisor | None) -> None:
        self._parts: list[Server | Supervisor] = [server] if supervisor is None else [server, supervisor]
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
        self._asked = True
        for part in self._parts:
            part.stop()
