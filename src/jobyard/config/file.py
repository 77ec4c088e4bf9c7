"""Configuration values from jobyard.yaml, each with its line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as File
from typing import Any, NamedTuple

from jobyard.config.keys import Key, Path, find
from jobyard.errors import BadOption, ConfigurationError


class SourcedValue(NamedTuple):
    """One value and its origin, for errors and `jobyard config show --origin`."""

    path: Path
    value: Any
    origin: str


class ConfigProblem(NamedTuple):
    """A value that cannot be used, and why."""

    origin: str
    message: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.message}"


def read_file(file: File) -> tuple[list[SourcedValue], list[ConfigProblem]]:
    """All values of the file, and all problems in it. Raises ConfigurationError if it cannot be parsed."""
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigurationError(f"Cannot read the configuration {file}: {why}.") from error
    try:
        import yaml  # noqa: PLC0415  # an extra: needed only where there is a file
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"Cannot read {file}: the Python package yaml is not installed. "
            "Run: pip install 'jobyard[server]', or set environment variables instead."
        ) from error
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        reader = _Reader(loader, file)
        if node is not None:
            reader.read((), node)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "nested too deeply"
        raise ConfigurationError(f"{file}{line} is not YAML: {problem}.{_quoted(error)}") from error
    finally:
        loader.dispose()
    return reader.given, reader.problems


def _quoted(error: Exception) -> str:
    """A hint for cron expressions: YAML gives a leading * or @ a meaning of its own."""
    is_star = getattr(error, "context", None) == "while scanning an alias"
    is_at = "'@'" in (getattr(error, "problem", None) or "")
    return " Put text that begins with * or @ in quotation marks." if is_star or is_at else ""


class _Reader:
    def __init__(self, loader: Any, file: File) -> None:
        self._loader = loader
        self._file = file
        self.given: list[SourcedValue] = []
        self.problems: list[ConfigProblem] = []

    def read(self, path: Path, node: Any) -> None:
        origin = f"{self._file}:{node.start_mark.line + 1}"
        try:
            known = find(path)
        except BadOption as error:
            self.problems.append(ConfigProblem(origin, str(error)))
            return
        if isinstance(known, Key):
            self._add(path, node, origin)
        elif len(path) == 2 and path[0] == "schedules" and not (node.id == "mapping" and node.value):
            self.problems.append(ConfigProblem(origin, f"{'.'.join(path)} needs an expression and a kind."))
        elif node.id == "mapping":
            for word, below in self._below(path, node):
                self.read((*path, word), below)
        elif not (node.id == "scalar" and node.value in ("", "null", "~")):
            self.problems.append(
                ConfigProblem(origin, f"{'.'.join(path) or 'The file'} must be a mapping of keys to values.")
            )

    def _add(self, path: Path, node: Any, origin: str) -> None:
        try:
            self.given.append(SourcedValue(path, self._loader.construct_object(node, deep=True), origin))
        except (ValueError, TypeError, OverflowError):  # such as a date that does not exist
            self.problems.append(
                ConfigProblem(origin, f"{'.'.join(path)} is not a valid value. Put it in quotation marks.")
            )

    def _below(self, path: Path, node: Any) -> Iterator[tuple[str, Any]]:
        self._loader.flatten_mapping(node)
        seen: set[str] = set()
        for key, value in node.value:
            word = str(key.value)
            if word in seen:
                origin = f"{self._file}:{key.start_mark.line + 1}"
                self.problems.append(ConfigProblem(origin, f"{'.'.join((*path, word))} is given twice."))
            else:
                seen.add(word)
                value.start_mark = key.start_mark  # a value may begin a line below its key
                yield word, value
