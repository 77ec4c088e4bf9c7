"""`jobyard check`: is this application ready to be deployed?"""

from __future__ import annotations

import os

import click

from jobyard.main.cli.findings import report
from jobyard.main.cli.session import Session, verb
from jobyard.main.settings import unknown_variables
from jobyard.ports.store import Finding, Level


@click.command()
@verb
async def check(session: Session) -> None:
    """Check the app and the settings before a deployment.

    Imports the app, lists its kinds and queues, opens its store and audits the counts. Exit code 1 when one of these
    goes wrong.

    \b
    Example:
      jobyard --app shop.jobs:yard check
    """
    yard = session.app()
    findings = [Finding(Level.OK, "app", f"{session.app_name} is a Jobyard")]
    findings += [Finding(Level.WARN, "settings", warning) for warning in unknown_variables(os.environ)]
    kinds = {
        name: {"queue": definition.defaults.queue, "parameters": list(definition.kind.names)}
        for name, definition in sorted(yard.definitions.items())
    }
    for name, kind in kinds.items():
        findings.append(Finding(Level.OK, "kind", f"{name}({', '.join(kind['parameters'])}) in queue {kind['queue']}"))
    if not kinds:
        findings.append(
            Finding(
                Level.WARN, "kind", "the app declares no handler", "decorate a function with @yard.job(), and import it"
            )
        )
    async with session.opened(yard):
        findings.append(Finding(Level.OK, "store", f"{yard.store.url} opens"))
        queues = await yard.queues()
        problems = await yard.store.audit()
        findings += [Finding(Level.FAIL, "audit", problem) for problem in problems]
        if not problems:
            findings.append(Finding(Level.OK, "audit", "every count agrees with the jobs"))
    known = {queue.name for queue in queues}
    findings += [Finding(Level.OK, "queue", name) for name in sorted(known)]
    report(session, findings, {"kinds": kinds, "queues": sorted(known)})
