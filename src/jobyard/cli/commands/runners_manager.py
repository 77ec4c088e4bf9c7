"""`jobyard runners manager`: launch and reconcile runners, in a process of its own."""

from __future__ import annotations

import click

from jobyard.cli.option_flags import setting_flag
from jobyard.cli.runner_access import configured
from jobyard.cli.runner_process import run_manager
from jobyard.cli.session import Session, json_option
from jobyard.config import settings


@click.command()
@setting_flag(
    settings.HEALTH_PORT,
    type=click.IntRange(1, 65535),
    help="The manager serves its /livez, /readyz, /health and /metrics on this port. Not set: no health server.",
)
@setting_flag(settings.HEALTH_HOST)
@json_option
@click.pass_obj
def manager(session: Session, health_port: int | None, health_host: str) -> None:
    """Launch and reconcile runners until stopped.

    `jobyard up` includes a manager; this is for servers and managers that run separately. Any number may run, on
    several machines. Webhooks arrive at `jobyard server`. SIGTERM or Ctrl-C: launches that have begun are finished;
    runners are left running.

    \b
    Example:
      jobyard --store postgresql://db/jobyard runners manager
    """
    session.is_service = True
    session.require_store()
    configured(session.configuration.runners)
    run_manager(session, health_host, health_port)


commands = (manager,)
