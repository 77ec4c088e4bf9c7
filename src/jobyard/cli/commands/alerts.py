"""`jobyard alerts`: the services that receive alerts."""

from __future__ import annotations

import socket

import click

from jobyard.cli.command_group import CommandGroup
from jobyard.cli.session import Session, async_command
from jobyard.errors import ConfigurationError, NotPossible
from jobyard.observability.notifications import Notifier


@click.group(cls=CommandGroup)
def alerts() -> None:
    """Test the alerts to Slack, Discord and other services.

    \b
    Example:
      jobyard alerts test
    """


@alerts.command("test")
@async_command
async def send_test(session: Session) -> None:
    """Send a test message to all services of alerts.urls.

    \b
    Example:
      jobyard alerts test
    """
    urls = session.configuration.alerts.urls
    if not urls:
        raise ConfigurationError(
            "No services are configured. Set alerts.urls in jobyard.yaml; see docs/configuration.md."
        )
    if not await Notifier(urls).send("jobyard: test", f"A test message from {socket.gethostname()}."):
        raise NotPossible(
            "Cannot send to all services of alerts.urls. Check their URLs and that this machine reaches them."
        )
    session.report({"services": len(urls)}, f"Sent to all services of alerts.urls ({len(urls)}).")
