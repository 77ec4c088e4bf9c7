"""The workflow files that the configuration names, checked against the application and its platforms."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from jobyard.app.declarations import declarations_of
from jobyard.app.jobyard import Jobyard
from jobyard.config.sections import Configuration
from jobyard.config.workflow_files import WorkflowFolder, read_files, read_folder
from jobyard.domain.platforms import known_platforms
from jobyard.domain.workflow_files.validation import HandlerParameters
from jobyard.executors.python.payload import MAX_PAYLOAD_BYTES
from jobyard.operations.workflow_catalog import WorkflowCatalog

log = logging.getLogger("jobyard.workflow")

USUAL_FOLDER = "workflows"


def workflow_folder(configuration: Configuration) -> Path | None:
    """The folder that is configured, else the usual one if it exists."""
    given = configuration.workflows.folder
    if given is not None:
        return Path(given)
    usual = Path(USUAL_FOLDER)
    return usual if usual.is_dir() else None


def step_kinds(yard: Jobyard) -> Mapping[str, HandlerParameters]:
    """The kinds that a step can have, with the parameters of their handlers."""
    handlers = {name: task.handler for name, task in declarations_of(yard).tasks.items()}
    return {
        name: HandlerParameters(handler.names, handler.required_names)
        for name, handler in handlers.items()
        if not (handler.is_workflow or handler.transactional)
    }


def read_workflows(
    configuration: Configuration, app: Jobyard | None, files: Iterable[Path] | None = None
) -> WorkflowFolder:
    """The valid workflows of the folder or of these files, and the problems of the others.

    Without an application, kinds and the names of inputs are not checked.
    """
    kinds = None if app is None else step_kinds(app)
    platforms = known_platforms(configuration.platforms)
    if files is not None:
        return read_files(files, kinds=kinds, platforms=platforms)
    folder = workflow_folder(configuration)
    if folder is None:
        return WorkflowFolder({})
    return read_folder(folder, kinds=kinds, platforms=platforms)


def load_catalog(configuration: Configuration, app: Jobyard | None, *, logs: bool = False) -> WorkflowCatalog:
    """The valid workflows; with `logs`, every problem of the other files is logged.

    One invalid file must not keep a server or a worker from starting: after a crash, all jobs would wait for it.
    """
    found = read_workflows(configuration, app)
    if logs:
        for problem in found.problems:
            log.error("workflow file not loaded: %s", problem)
    most = MAX_PAYLOAD_BYTES if app is None else app.max_payload_bytes
    return WorkflowCatalog(found.definitions, configuration.platforms, most, found.invalid)
