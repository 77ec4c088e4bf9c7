"""The text of a workflow file as JSON values: JSON without duplicate keys, or the core schema of YAML 1.2."""

from __future__ import annotations

import json
import math
import re
from enum import StrEnum
from typing import Any

from jobyard.domain.workflow_files.problems import Problems, pointer

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_MAX_DIGITS = 20


class Format(StrEnum):
    JSON = "json"
    YAML = "yaml"


class ObjectWithDuplicates(dict[str, Any]):
    """An object whose text gave some keys more than once."""

    duplicates: tuple[str, ...] = ()


class TextError(ValueError):
    """The text cannot be parsed."""


def parse(text: str, text_format: Format) -> Any:
    """The value of the text, of dicts, lists, strings, numbers, booleans and None. Raises TextError."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise TextError("The file is not UTF-8 text.") from None
    if size > MAX_BYTES:
        raise TextError(f"The file has {size:,} bytes. A workflow file may have at most {MAX_BYTES:,}.")
    if text_format is Format.YAML:
        try:
            from jobyard.domain.workflow_files.yaml_text import parse_yaml  # noqa: PLC0415  # PyYAML is an extra
        except ModuleNotFoundError as error:
            raise TextError(
                "Cannot read YAML: the Python package yaml is not installed. "
                "Run: pip install 'jobyard[server]', or write the file as JSON."
            ) from error
        value = parse_yaml(text)
    else:
        value = parse_json(text)
    _check_depth(value)
    return value


def parse_json(text: str) -> Any:
    try:
        return json.loads(
            text.removeprefix("\ufeff"),
            object_pairs_hook=object_of,
            parse_int=whole_number,
            parse_float=real_number,
            parse_constant=_refuse,
        )
    except json.JSONDecodeError as error:
        raise TextError(f"Line {error.lineno}, column {error.colno} is not JSON: {error.msg}.") from None
    except RecursionError:
        raise too_deep() from None


def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen: set[str] = set()
    twice = [key for key, _ in pairs if key in seen or seen.add(key)]  # type: ignore[func-returns-value]
    marked = ObjectWithDuplicates(found)
    marked.duplicates = tuple(dict.fromkeys(twice))
    return marked


def whole_number(text: str) -> int:
    if len(text) > _MAX_DIGITS or not -(1 << 63) <= int(text) < 1 << 64:
        raise TextError(f"The number {text[:30]} is too large. Write it as text, in quotation marks.")
    return int(text)


def real_number(text: str) -> float:
    if not math.isfinite(float(text)):
        raise TextError(f"The number {text[:30]} is too large. Write it as text, in quotation marks.")
    return float(text)


def too_deep() -> TextError:
    return TextError(f"The file is nested deeper than {MAX_DEPTH} levels.")


def _refuse(word: str) -> Any:
    raise TextError(f"{word} is not JSON. Use a number, or null.")


def _check_depth(value: Any) -> None:
    pending = [(0, value)]
    while pending:
        depth, each = pending.pop()
        if depth > MAX_DEPTH:
            raise too_deep()
        if isinstance(each, dict | list):
            pending += [(depth + 1, below) for below in (each.values() if isinstance(each, dict) else each)]


def check_text(value: Any, problems: Problems, at: str = "") -> None:
    """Add duplicate keys, and text that no store can hold."""
    match value:
        case dict():
            for key in getattr(value, "duplicates", ()):
                problems.add(pointer(at, key), "is given twice. Remove one of them.")
            for key, below in value.items():
                if _SURROGATE.search(key):
                    problems.add(at, "has a key with half of a surrogate pair. Write the whole character.")
                check_text(below, problems, pointer(at, key))
        case list():
            for index, below in enumerate(value):
                check_text(below, problems, pointer(at, index))
        case str() if _SURROGATE.search(value):
            problems.add(at, "holds half of a surrogate pair. Write the whole character.")
