"""`jobyard check`: validate configuration, app and store before a deployment."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import click

from jobyard.app.declarations import declarations_of
from jobyard.app.jobyard import Jobyard
from jobyard.cli.findings.audit import audit_findings
from jobyard.cli.findings.report import report
from jobyard.cli.findings.schedules import declared_findings
from jobyard.cli.findings.server import alert_findings, certificate_findings
from jobyard.cli.findings.workflows import workflow_findings
from jobyard.cli.session import Session, async_command
from jobyard.config.settings import unknown_variables
from jobyard.config.store_factory import make_store
from jobyard.errors import JobyardError
from jobyard.ports.store import Finding, Level


@click.command()
@async_command
async def check(session: Session) -> None:
    """Check configuration, app and store before a deployment.

    Reads the configuration, the certificate of the server and the addresses for alerts, imports the app, lists its
    kinds, workflow files, queues and schedules, opens its store and audits the counts. Without an app (a server that
    accepts any kind) the rest is checked. Exit code 1 if one fails.

    \b
    Example:
      jobyard --app shop.jobs:yard check
    """
    if session.config_errors:
        report(session, [Finding(Level.FAIL, "configuration", each) for each in session.config_errors])
        return
    findings = [Finding(Level.OK, "configuration", f"{session.found.file or 'no file'}; all values are valid")]
    findings += [Finding(Level.WARN, "settings", warning) for warning in unknown_variables(os.environ)]
    findings += _language_findings(session.configuration.sandbox.languages)
    findings += certificate_findings(session.configuration.server)
    findings += alert_findings(session.configuration.alerts.urls)
    if session.app_name is None:
        findings.append(Finding(Level.WARN, "app", "no application given", "pass --app or set JOBYARD_APP"))
    stores = [finding async for finding in _queue_stores(session)]
    findings += stores
    if any(finding.level is Level.FAIL for finding in stores):
        report(session, findings)
        return
    yard = session.yard()
    kinds = _kinds(yard)
    if session.app_name is not None:
        findings += _app_findings(session.app_name, kinds)
    findings += workflow_findings(session, yard if session.app_name is not None else None)
    async with session.opened(yard):
        findings.append(Finding(Level.OK, "store", f"{yard.store.url} opens"))
        queues = await yard.queues()
        findings += await audit_findings(yard.store)
        findings += [finding async for finding in declared_findings(session, yard)]
    known = {queue.name for queue in queues}
    findings += [Finding(Level.OK, "queue", name) for name in sorted(known)]
    report(session, findings, {"kinds": kinds, "queues": sorted(known)})


async def _queue_stores(session: Session) -> AsyncIterator[Finding]:
    """Opened one by one, to name the one that fails."""
    for queue, url in session.configuration.store.queues.items():
        try:
            store = make_store(url)
            await store.open()
            await store.close()
        except JobyardError as error:
            yield Finding(Level.FAIL, "store", f"of queue {queue}: {error}", f"fix store.queues.{queue}")
        else:
            yield Finding(Level.OK, "store", f"of queue {queue}: {store.url} opens")


def _language_findings(file: str | None) -> Iterator[Finding]:
    """The definitions that replace those of the package; a mistake in them would stop the daemon of every worker."""
    if file is None:
        return
    from jobyard.sandbox.daemon.languages import BadLanguages, load  # noqa: PLC0415  # imported only here: PyYAML

    try:
        found = load(Path(file))
    except BadLanguages as error:
        yield Finding(Level.FAIL, "languages", str(error), "fix the file that sandbox.languages names")
    else:
        yield Finding(Level.OK, "languages", f"{file} defines {', '.join(found)}")


def _kinds(yard: Jobyard) -> dict[str, dict[str, Any]]:
    return {
        name: {"queue": definition.defaults.queue, "parameters": list(definition.handler.names)}
        for name, definition in sorted(declarations_of(yard).tasks.items())
    }


def _app_findings(name: str, kinds: dict[str, dict[str, Any]]) -> Iterator[Finding]:
    yield Finding(Level.OK, "app", f"{name} is a Jobyard")
    for kind, facts in kinds.items():
        yield Finding(Level.OK, "kind", f"{kind}({', '.join(facts['parameters'])}) in queue {facts['queue']}")
    if not kinds:
        advice = "decorate a function with @yard.job(), and import its module"
        yield Finding(Level.WARN, "kind", "the app declares no handlers", advice)
