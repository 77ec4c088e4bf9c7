"""jobyard.yaml as single values, each with its line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as File
from typing import Any, NamedTuple

from jobyard.config.keys import Key, Path, find
from jobyard.errors import BadOption, ConfigurationError


class Given(NamedTuple):
    """A value, and where it was found: for errors, and for `jobyard config show --origin`."""

    path: Path
    value: Any
    origin: str


class Trouble(NamedTuple):
    origin: str
    says: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.says}"


def read_file(file: File) -> tuple[list[Given], list[Trouble]]:
    """Everything that the file says, and everything in it that cannot be used."""
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigurationError(f"The configuration {file} cannot be read: {why}.") from error
    try:
        import yaml  # noqa: PLC0415  # an extra: needed only where there is a file
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"Reading {file} needs the Python package yaml, which is not installed. "
            "Install it with: pip install 'jobyard[server]', or set variables instead of the file."
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
        problem = getattr(error, "problem", None) or "nested too deep"
        raise ConfigurationError(f"{file}{line} is not YAML: {problem}.{_quoted(error)}") from error
    finally:
        loader.dispose()
    return reader.given, reader.trouble


def _quoted(error: Exception) -> str:
    """Cron expressions often begin with what YAML gives a meaning of its own."""
    is_star = getattr(error, "context", None) == "while scanning an alias"
    is_at = "'@'" in (getattr(error, "problem", None) or "")
    return " Text that begins with * or @ stands in quotation marks." if is_star or is_at else ""


class _Reader:
    def __init__(self, loader: Any, file: File) -> None:
        self._loader = loader
        self._file = file
        self.given: list[Given] = []
        self.trouble: list[Trouble] = []

    def read(self, path: Path, node: Any) -> None:
        origin = f"{self._file}:{node.start_mark.line + 1}"
        try:
            known = find(path)
        except BadOption as error:
            self.trouble.append(Trouble(origin, str(error)))
            return
        if isinstance(known, Key):
            self._add(path, node, origin)
        elif len(path) == 2 and path[0] == "schedules" and not (node.id == "mapping" and node.value):
            self.trouble.append(Trouble(origin, f"{'.'.join(path)} must say an expression and a kind."))
        elif node.id == "mapping":
            for word, below in self._below(path, node):
                self.read((*path, word), below)
        elif not (node.id == "scalar" and node.value in ("", "null", "~")):
            self.trouble.append(Trouble(origin, f"{'.'.join(path) or 'The file'} must hold keys and values."))

    def _add(self, path: Path, node: Any, origin: str) -> None:
        try:
            self.given.append(Given(path, self._loader.construct_object(node, deep=True), origin))
        except (ValueError, TypeError, OverflowError):  # such as a date that does not exist
            self.trouble.append(Trouble(origin, f"{'.'.join(path)} cannot be read; write it in quotation marks."))

    def _below(self, path: Path, node: Any) -> Iterator[tuple[str, Any]]:
        self._loader.flatten_mapping(node)
        seen: set[str] = set()
        for key, value in node.value:
            word = str(key.value)
            if word in seen:
                origin = f"{self._file}:{key.start_mark.line + 1}"
                self.trouble.append(Trouble(origin, f"{'.'.join((*path, word))} is given twice."))
            else:
                seen.add(word)
                value.start_mark = key.start_mark  # a value may begin a line below its key
                yield word, value
