"""`jobyard scheduler`: fire schedules until stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from typing import TYPE_CHECKING

import click

from jobyard.app.jobyard import Jobyard
from jobyard.app.scheduling import Scheduling, declare_all
from jobyard.cli.commands.worker import health_server, run_loop
from jobyard.cli.option_flags import setting_flag
from jobyard.cli.session import Session, json_option
from jobyard.config.settings import SCHEDULER_HEALTH_HOST, SCHEDULER_HEALTH_PORT
from jobyard.errors import ConfigurationError
from jobyard.operations.store_risks import warn_of_risks

if TYPE_CHECKING:
    from jobyard.app.health_server import WorkerHealth

log = logging.getLogger("jobyard.scheduler")

# What a stop may take: one call of the store, and closing it. A store that hangs does not delay the exit.
LAST_SECONDS = 3.0
END_SECONDS = 5.0


@click.command()
@setting_flag(SCHEDULER_HEALTH_HOST)
@setting_flag(SCHEDULER_HEALTH_PORT, type=click.IntRange(1, 65535))
@json_option
@click.pass_obj
def scheduler(session: Session, health_host: str, health_port: int | None) -> None:
    """Fire schedules until stopped.

    `jobyard up` includes one; this is for servers and workers that run separately. Any number may run, on several
    machines: each instant fires once. With an app, the schedules of its @yard.cron(…) are written to the store first.
    SIGTERM or Ctrl-C stops it at once, with exit code 0.

    \b
    Example:
      jobyard --app shop.jobs:yard scheduler
    """
    yard = session.yard()
    session.set_up_logs("info", everything=True)
    health = None if health_port is None else health_server(yard, health_host, health_port)
    run_loop(_run(session, yard, health))


async def _run(session: Session, yard: Jobyard, health: WorkerHealth | None) -> None:
    async with session.opened(yard), contextlib.AsyncExitStack() as beside:
        require_shared_store(yard)
        await warn_of_risks(yard.store)
        await declare_schedules(session, yard)
        scheduling = Scheduling(yard, yard.observer)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _stop, scheduling)
        if health is not None:
            await beside.enter_async_context(health.serving(None, scheduling.is_asked))
        await beside.enter_async_context(session.notify.pinging(scheduling.is_alive))
        session.notify.ready(f"{scheduling.scheduler.name}: firing schedules of {yard.store.url}")
        await scheduling.run()
        session.notify.stopping(END_SECONDS)
    if session.as_json:
        session.print_json({"scheduler": scheduling.scheduler.name})


async def declare_schedules(session: Session, yard: Jobyard) -> None:
    """Only by processes that fire schedules: an older worker that restarts must not restore old ones."""
    declared = session.configuration.schedules
    in_file = declared if session.found.file is not None or declared else None
    await declare_all(yard, session.app_name, in_file, session.configuration.scheduler.shortest_interval_seconds)


def require_shared_store(yard: Jobyard) -> None:
    if yard.store.url.startswith("memory:"):
        raise ConfigurationError(
            "Cannot use memory:// with worker processes: it exists in one process only. "
            "Name a store that they share: --store sqlite:///jobs.db"
        )


def _stop(scheduling: Scheduling) -> None:
    """Exits at once, even if the store hangs: a call in flight takes effect completely, or not at all."""
    if not scheduling.is_asked():
        last = threading.Timer(LAST_SECONDS, os._exit, (0,))
        last.daemon = True
        last.start()
    scheduling.stop()
