"""The workflow files that the configuration names, checked against the application and its platforms."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from jobyard.app.declarations import declarations_of
from jobyard.app.jobyard import Jobyard
from jobyard.config.sections import Configuration
from jobyard.config.workflow_files import WorkflowFolder, read_files, read_folder
from jobyard.domain.platforms import known_platforms
from jobyard.errors import InvalidWorkflow
from jobyard.executors.python.payload import MAX_PAYLOAD_BYTES
from jobyard.operations.workflow_catalog import WorkflowCatalog

USUAL_FOLDER = "workflows"


def workflow_folder(configuration: Configuration) -> Path | None:
    """The folder that is configured, else the usual one if it exists."""
    given = configuration.workflows.folder
    if given is not None:
        return Path(given)
    usual = Path(USUAL_FOLDER)
    return usual if usual.is_dir() else None


def step_kinds(yard: Jobyard) -> Collection[str]:
    """The kinds that a step can have."""
    tasks = declarations_of(yard).tasks
    return [name for name, task in tasks.items() if not (task.handler.is_workflow or task.handler.transactional)]


def read_workflows(
    configuration: Configuration, app: Jobyard | None, files: Iterable[Path] | None = None
) -> WorkflowFolder:
    """The valid workflows of the folder or of these files, and the problems of the others.

    Without an application, kinds are not checked.
    """
    kinds = None if app is None else step_kinds(app)
    platforms = known_platforms(configuration.platforms)
    if files is not None:
        return read_files(files, kinds=kinds, platforms=platforms)
    folder = workflow_folder(configuration)
    if folder is None:
        return WorkflowFolder({}, ())
    return read_folder(folder, kinds=kinds, platforms=platforms)


def load_catalog(configuration: Configuration, app: Jobyard | None) -> WorkflowCatalog:
    """All workflows. Raises InvalidWorkflow with every problem of every file."""
    found = read_workflows(configuration, app)
    if found.problems:
        raise InvalidWorkflow(found.problems)
    most = MAX_PAYLOAD_BYTES if app is None else app.max_payload_bytes
    return WorkflowCatalog(found.definitions, configuration.platforms, most)
