"""`jobyard audit`: recount everything in a store, and repair what disagrees."""

from __future__ import annotations

import click

from jobyard.cli.findings.audit import audit_findings
from jobyard.cli.findings.report import report
from jobyard.cli.session import Session, async_command
from jobyard.operations.workflow_audit import repair_workflows
from jobyard.ports.store import Finding, Level


@click.command()
@click.option("--repair", "repairs", is_flag=True, help="Rebuild counters and queue positions from the job records.")
@async_command
async def audit(session: Session, repairs: bool) -> None:
    """Recount a store and compare with the stored counts.

    It also finds workflows that wait for a job which has ended, and jobs whose workflow has ended. It reads all jobs;
    Redis serves no other client while it reads a queue, about a second for 100,000 jobs. --repair repairs what it finds
    and lists it, while workers may run; keep a copy of the store first. Exit code 1 if something is wrong, or still
    wrong after a repair.

    \b
    Example:
      jobyard --store redis://localhost:6379/0 audit
      jobyard --store redis://localhost:6379/0 audit --repair
    """
    session.require_store()
    async with session.opened_store() as store:
        repaired = [*await store.repair(), *await repair_workflows(store)] if repairs else []
        findings = [Finding(Level.OK, "repaired", sentence) for sentence in repaired]
        findings += await audit_findings(store, full=True)
    report(session, findings)
