"""Findings about settings without which a server does not start: its certificate, the services of its alerts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobyard.cli.commands.worker import require_packages
from jobyard.config.sections import ServerSection
from jobyard.errors import ConfigurationError
from jobyard.observability.notifications import Notifier
from jobyard.ports.store import Finding, Level


def certificate_findings(section: ServerSection) -> Iterator[Finding]:
    if section.tls_cert is None and section.tls_key is None:
        return
    try:
        require_packages("The server")
        from jobyard.server.server import require_certificate  # noqa: PLC0415  # its packages are an extra

        require_certificate(section)
    except ConfigurationError as error:
        yield Finding(Level.FAIL, "certificate", str(error), "correct server.tls_cert and server.tls_key")
    else:
        yield Finding(Level.OK, "certificate", f"{section.tls_cert} can be used")


def alert_findings(urls: Sequence[str]) -> Iterator[Finding]:
    if not urls:
        return
    try:
        Notifier(urls)
    except ConfigurationError as error:
        yield Finding(Level.FAIL, "alerts", str(error), "correct alerts.urls")
    else:
        yield Finding(Level.OK, "alerts", "all of alerts.urls are understood; to try them: jobyard alerts test")
