"""Findings about workflow files: all of them for `jobyard check`, invalid ones for `jobyard doctor`."""

from __future__ import annotations

from collections.abc import Iterator

from jobyard.app.jobyard import Jobyard
from jobyard.cli.session import Session
from jobyard.cli.workflow_folder import read_workflows
from jobyard.domain.text import counted
from jobyard.errors import JobyardError
from jobyard.ports.store import Finding, Level

CHECK = "workflow"


def workflow_findings(session: Session, yard: Jobyard | None) -> Iterator[Finding]:
    try:
        found = read_workflows(session.configuration, yard)
    except JobyardError as error:
        yield Finding(Level.FAIL, CHECK, str(error), "fix workflows.folder")
        return
    for definition in found.definitions.values():
        steps = counted(len(definition.steps), "step")
        yield Finding(Level.OK, CHECK, f"{definition.id} ({definition.file}, {steps})")
    for problem in found.problems:
        yield Finding(Level.FAIL, CHECK, problem)


def invalid_workflows(session: Session) -> Iterator[Finding]:
    """Those that a server started here would not load; kinds are checked if the application can be imported."""
    try:
        yard = session.app() if session.app_name is not None else None
    except JobyardError:
        yard = None
    return (finding for finding in workflow_findings(session, yard) if finding.level is Level.FAIL)
