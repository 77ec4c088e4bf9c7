"""`jobyard server` and `jobyard up`: the API, alone or with workers and a scheduler."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from jobyard.app.process_manager import Supervisor
from jobyard.cli.commands.worker import default_queues, worker_app, worker_options
from jobyard.cli.option_flags import setting_flag
from jobyard.cli.server_process import UpOptions, start
from jobyard.cli.session import Session, json_option
from jobyard.cli.worker_replacement import memory_limit, require_memory
from jobyard.config.settings import (
    CONFIG,
    HOST,
    PORT,
    PROCESSES,
    PUBLIC_ORIGIN,
    ROOT_PATH,
    SCHEDULER,
    SETTINGS,
    TLS_CERT,
    TLS_KEY,
)
from jobyard.domain.text import counted
from jobyard.errors import BadOption, ConfigurationError

Command = Callable[..., Any]
MAX_PORT = 65535
WEB_OPTIONS = ("tls_cert", "tls_key", "root_path", "public_origin")


def server_options(command: Command) -> Command:
    for option in (
        click.option("--insecure", is_flag=True, help="Accept requests without a token; on loopback only."),
        setting_flag(PUBLIC_ORIGIN),
        setting_flag(ROOT_PATH),
        setting_flag(TLS_KEY, type=click.Path(dir_okay=False)),
        setting_flag(TLS_CERT, type=click.Path(dir_okay=False)),
        setting_flag(PORT, type=click.IntRange(0, MAX_PORT)),
        setting_flag(HOST),
    ):
        command = option(command)
    return command


@click.command()
@server_options
@json_option
@click.pass_obj
def server(session: Session, /, host: str, port: int, insecure: bool, **web: str | None) -> None:
    """Serve the API, without workers.

    With an app, it accepts the kinds of the app and validates their payloads; without one, any kind. On loopback, the
    first start creates a token and prints it once. SIGTERM or Ctrl-C: no new connections, streams end, requests finish;
    exit code 0. A second signal stops at once.

    \b
    Example:
      jobyard --app shop.jobs:yard server --port 8080
    """
    start(session, host, port, web, insecure=insecure)


@click.command()
@server_options
@worker_options
@setting_flag(PROCESSES, type=click.IntRange(1, 1000))
@setting_flag(SCHEDULER, "--scheduler/--no-scheduler", "scheduler", default=True)
@json_option
@click.pass_obj
def up(
    session: Session, /, host: str, port: int, insecure: bool, processes: int, scheduler: bool, **worker: Any
) -> None:
    """Serve the API, fire schedules and keep workers running.

    Workers are separate processes; one that dies is replaced. SIGTERM or Ctrl-C drains everything and exits with code
    0; a second signal stops at once. With --sandbox, the workers also run programs submitted to POST /execute; then no
    application is needed. With profiles of GitHub runners configured, it also receives GitHub's webhook and manages the
    runners.

    \b
    Example:
      jobyard --app shop.jobs:yard up --concurrency 8 --processes 2
    """
    web = {name: worker.pop(name) for name in WEB_OPTIONS}
    runners = session.configuration.runners
    has_runners = runners.is_configured and runners.enabled
    has_workers = session.app_name is not None or worker["sandbox"] or not has_runners
    if session.app_name is None and has_workers and not worker["sandbox"]:
        raise ConfigurationError(
            "`jobyard up` needs your application, because its workers run that application's jobs. Pass --app, or set "
            "JOBYARD_APP. Without one, `jobyard server` serves the API and the dashboard."
        )
    if has_workers:
        worker_app(session, sandbox=worker["sandbox"], concurrency=worker["concurrency"])  # fails before the port opens
    worker["queues"] = worker["queues"] or default_queues(session)
    worker["memory_limit"] = memory_limit(session, worker["memory_limit"], worker["queues"])
    if worker["memory_limit"] is not None:
        require_memory(worker["memory_limit"])
    last = processes - 1 + (worker["health_port"] or 0)
    if last > MAX_PORT:
        raise BadOption(
            f"Cannot start {processes} workers: the last health port would be {last}, above {MAX_PORT}.",
            option="health_port",
        )
    supervisor = Supervisor(
        lambda number: child_command(worker, number),
        child_environment(session, os.environ),
        processes,
        shutdown_seconds=float(worker["shutdown_timeout"]),
    )
    # Runners alone need no worker processes: their tickets are claimed by this process.
    supervised = supervisor if has_workers else None
    made = {name: worker[name] for name in ("concurrency", "queues", "shutdown_timeout")}
    made["lease"] = worker["lease_seconds"]
    parts = {
        counted(processes, "worker process", "worker processes"): has_workers,
        "scheduler": scheduler,
        "sandbox": worker["sandbox"],
        "GitHub runners": has_runners,
    }
    summary = ", ".join(part for part, is_there in parts.items() if is_there)
    up = UpOptions(supervised, made, summary, scheduler, worker["sandbox"], has_runners)
    start(session, host, port, web, insecure=insecure, up=up)


def child_command(worker: Mapping[str, Any], number: int) -> list[str]:
    command = [sys.executable, "-m", "jobyard", "worker", "--until-input-ends"]
    command.append("--sandbox" if worker["sandbox"] else "--no-sandbox")
    for name in ("concurrency", "lease_seconds", "shutdown_timeout"):
        command += [f"--{name.replace('_', '-')}", str(worker[name])]
    command += ["--memory-limit", str(worker["memory_limit"] or 0)]
    for queue in worker["queues"]:
        command += ["--queue", queue]
    if worker["health_port"] is not None:
        command += ["--health-host", worker["health_host"], "--health-port", str(worker["health_port"] + number - 1)]
    return command


def child_environment(session: Session, environment: Mapping[str, str]) -> dict[str, str]:
    """Flags are passed on as variables: a URL may hold a password, and command lines are visible to all users."""
    variables = dict(environment)
    if session.found.file is not None:
        variables[CONFIG.variable] = str(session.found.file.resolve())
    for setting in SETTINGS:
        given = session.found.given.get(tuple(setting.key.split(".")))
        if given is not None and given.origin == setting.flag:
            variables[setting.variable] = str(given.value)
    return variables
