"""`jobyard server` and `jobyard up`: the API, alone or with workers that are kept running."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from jobyard.app.process_manager import Supervisor
from jobyard.cli.commands.worker import default_queues, worker_app, worker_options
from jobyard.cli.server_process import UpOptions, start
from jobyard.cli.session import Session, json_option
from jobyard.config.settings import CONFIG, HOST, PORT, PROCESSES, SCHEDULER, SETTINGS
from jobyard.errors import BadOption

Command = Callable[..., Any]
MAX_PORT = 65535


def server_options(command: Command) -> Command:
    for option in (
        click.option("--insecure", is_flag=True, help="Let everybody in, without tokens; on loopback only."),
        click.option(
            "--port", type=click.IntRange(0, MAX_PORT), envvar=PORT.variable, default=PORT.default, help=PORT.doc,
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
@click.option(
    "--scheduler/--no-scheduler",
    "scheduler",
    envvar=SCHEDULER.variable,
    default=True,
    help=SCHEDULER.doc,
    show_default=True,
)
@json_option
@click.pass_obj
def up(
    session: Session, /, host: str, port: int, insecure: bool, processes: int, scheduler: bool, **worker: Any
) -> None:
    """Serve the API, fire schedules and keep workers running.

    The workers are processes of their own; one that dies is replaced. SIGTERM or Ctrl-C drains all of it and ends with
    exit code 0; a second signal does so at once. With --sandbox the workers also run programs that people hand in at
    POST /execute; then it needs no application.

    \b
    Example:
      jobyard --app shop.jobs:yard up --concurrency 8 --processes 2
    """
    worker_app(session, sandbox=worker["sandbox"], concurrency=worker["concurrency"])  # refused before anything listens
    worker["queues"] = worker["queues"] or default_queues(session)
    last = processes - 1 + (worker["health_port"] or 0)
    if last > MAX_PORT:
        raise BadOption(f"The last of {processes} workers would have the health port {last}; there are {MAX_PORT}.")
    supervisor = Supervisor(
        lambda number: child_command(worker, number),
        child_environment(session, os.environ),
        processes,
        shutdown_seconds=float(worker["shutdown_timeout"]),
    )
    made = {word: worker[word] for word in ("concurrency", "queues", "shutdown_timeout")}
    made["lease"] = worker["lease_seconds"]
    shown = f"{processes} worker process{'es' if processes > 1 else ''}" + (", scheduler" if scheduler else "")
    shown += ", sandbox" if worker["sandbox"] else ""
    start(
        session,
        host,
        port,
        insecure=insecure,
        up=UpOptions(supervisor, made, shown, scheduler, worker["sandbox"]),
    )


def child_command(worker: Mapping[str, Any], number: int) -> list[str]:
    words = [sys.executable, "-m", "jobyard", "worker", "--until-input-ends"]
    words.append("--sandbox" if worker["sandbox"] else "--no-sandbox")
    for word in ("concurrency", "lease_seconds", "shutdown_timeout"):
        words += [f"--{word.replace('_', '-')}", str(worker[word])]
    for queue in worker["queues"]:
        words += ["--queue", queue]
    if worker["health_port"] is not None:
        words += ["--health-host", worker["health_host"], "--health-port", str(worker["health_port"] + number - 1)]
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
