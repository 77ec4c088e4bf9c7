"""Workflow files from a folder: `workflows/*.json`, `*.yaml` and `*.yml`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from jobyard.domain.workflow_files.definition import WorkflowDefinition
from jobyard.domain.workflow_files.parse import parse_workflow
from jobyard.domain.workflow_files.source import MAX_BYTES, Format
from jobyard.errors import ConfigurationError, InvalidWorkflow

FORMATS = {".json": Format.JSON, ".yaml": Format.YAML, ".yml": Format.YAML}


class WorkflowFolder(NamedTuple):
    """The valid workflows of a folder by id; the problems of the others, one line each, and the paths of these."""

    definitions: Mapping[str, WorkflowDefinition]
    problems: tuple[str, ...] = ()
    invalid: tuple[str, ...] = ()


def read_folder(
    folder: Path, *, kinds: Collection[str] | None = None, platforms: Collection[str] | None = None
) -> WorkflowFolder:
    """All workflow files of a folder, in the order of their names. Raises ConfigurationError if it cannot be read."""
    return read_files(_files_of(folder), kinds=kinds, platforms=platforms)


def _files_of(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if _is_workflow(path))
    except OSError as error:
        raise ConfigurationError(f"Cannot read the workflow folder {folder}: {error.strerror}.") from error


def read_files(
    paths: Iterable[Path], *, kinds: Collection[str] | None = None, platforms: Collection[str] | None = None
) -> WorkflowFolder:
    """These workflow files, and those of these folders; no two may have the same id."""
    definitions: dict[str, WorkflowDefinition] = {}
    problems: list[str] = []
    invalid: list[str] = []
    for path in (each for given in paths for each in (_files_of(given) if given.is_dir() else [given])):
        try:
            found = read_workflow(path, kinds=kinds, platforms=platforms)
        except InvalidWorkflow as error:
            problems += error.problems
            invalid.append(str(path))
            continue
        if found.id in definitions:
            problems.append(f'{path}: /id: is "{found.id}", as that of {definitions[found.id].file}. Rename one.')
            invalid.append(str(path))
        else:
            definitions[found.id] = found
    return WorkflowFolder(definitions, tuple(problems), tuple(invalid))


def _is_workflow(path: Path) -> bool:
    # A copy of the schema stands beside the files that name it.
    return path.suffix in FORMATS and not path.name.endswith(".schema.json") and path.is_file()


def load_folder(
    folder: Path, *, kinds: Collection[str] | None = None, platforms: Collection[str] | None = None
) -> Mapping[str, WorkflowDefinition]:
    """The workflows of a folder by id. Raises InvalidWorkflow with the problems of all files."""
    found = read_folder(folder, kinds=kinds, platforms=platforms)
    if found.problems:
        raise InvalidWorkflow(found.problems)
    return found.definitions


def read_workflow(
    path: Path, *, kinds: Collection[str] | None = None, platforms: Collection[str] | None = None
) -> WorkflowDefinition:
    """The workflow of one file. Raises InvalidWorkflow with every problem of it."""
    text_format = FORMATS.get(path.suffix)
    if text_format is None:
        raise InvalidWorkflow([f"{path}: must be named .json, .yaml or .yml."])
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        text = data.decode()
    except OSError as error:
        raise InvalidWorkflow([f"{path}: Cannot read the file: {error.strerror}."]) from None
    except UnicodeDecodeError:
        if len(data) > MAX_BYTES:  # it may have been cut within a character
            raise InvalidWorkflow([f"{path}: The file has more than {MAX_BYTES:,} bytes."]) from None
        raise InvalidWorkflow([f"{path}: The file is not UTF-8 text."]) from None
    return parse_workflow(text, file=str(path), text_format=text_format, kinds=kinds, platforms=platforms)
