"""YAML as JSON values, by the core schema of YAML 1.2: `no` is text, there are no aliases, tags or duplicate keys."""

from __future__ import annotations

import re
from typing import Any

import yaml

from jobyard.domain.workflow_files.source import MAX_DEPTH, TextError, object_of, real_number, too_deep, whole_number

# The parser in C is ten times faster. Only the events of either are used, not the types that it would construct.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEAN = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def parse_yaml(text: str) -> Any:
    """The value of the only document. Raises TextError with the line."""
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.add(event)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"Line {mark.line + 1}, column {mark.column + 1}" if mark is not None else "The file"
        problem = getattr(error, "problem", None) or "it holds a character that YAML does not allow"
        hint = "" if mark is None else _hint(text, mark.index)
        raise TextError(f"{line} is not YAML: {problem}.{hint}") from None
    return builder.value


def _hint(text: str, index: int) -> str:
    """YAML gives these characters a meaning of their own, and references and conditions use them."""
    line = text[text.rfind("\n", 0, index) + 1 :].partition("\n")[0]
    is_special = "${" in line or re.search(r"[:\-] *[*&!@%`]", line)
    return " Put text with ${ } or a special character in quotation marks." if is_special else ""


class _Builder:
    """Makes the value from parser events, without recursion and without the types of YAML 1.1."""

    def __init__(self) -> None:
        self.value: Any = None
        self._documents = 0
        # Open lists, and open objects as lists of pairs with the key that waits for its value.
        self._open: list[tuple[list[Any], bool]] = []
        self._keys: list[str | None] = []

    def add(self, event: yaml.events.Event) -> None:
        match event:
            case yaml.events.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    raise _failed(event, "a file holds one document")
            case yaml.events.AliasEvent():
                raise _failed(event, f"the alias *{str(event.anchor)[:50]} is not allowed. Write the value again")
            case yaml.events.ScalarEvent():
                self._scalar(event)
            case yaml.events.CollectionStartEvent():
                _refuse_tag(event)
                if self._is_key():
                    raise _failed(event, "a key must be text")
                if len(self._open) >= MAX_DEPTH:
                    raise too_deep()
                self._open.append(([], isinstance(event, yaml.events.MappingStartEvent)))
                self._keys.append(None)
            case yaml.events.CollectionEndEvent():
                values, is_mapping = self._open.pop()
                self._keys.pop()
                self._put(object_of(values) if is_mapping else values)

    def _scalar(self, event: yaml.events.ScalarEvent) -> None:
        _refuse_tag(event)
        if self._is_key():
            self._keys[-1] = event.value
            return
        is_plain = not event.style  # None, or "" from the parser in C
        try:
            self._put(_plain(event.value) if is_plain else event.value)
        except TextError as error:
            raise _failed(event, str(error).rstrip(".")) from None

    def _is_key(self) -> bool:
        return bool(self._open) and self._open[-1][1] and self._keys[-1] is None

    def _put(self, value: Any) -> None:
        if not self._open:
            self.value = value
            return
        values, is_mapping = self._open[-1]
        values.append((self._keys[-1], value) if is_mapping else value)
        self._keys[-1] = None


def _plain(text: str) -> Any:
    """
    >>> [_plain(text) for text in ("no", "true", "012", "0x1F", "1.5", "", "2026-01-01", "1_000", "12:30")]
    ['no', True, 12, 31, 1.5, None, '2026-01-01', '1_000', '12:30']
    """
    if text in _NULL:
        return None
    if text in _BOOLEAN:
        return _BOOLEAN[text]
    if _INTEGER.fullmatch(text):
        if text[1:2] in ("o", "x"):
            return whole_number(str(int(text[2:22], 8 if text[1] == "o" else 16)) if len(text) <= 22 else text)
        return whole_number(text)
    if _FLOAT.fullmatch(text):
        return real_number(text)
    if _NOT_FINITE.fullmatch(text):
        raise TextError(f"{text} is not a JSON number.")
    return text


def _refuse_tag(event: Any) -> None:
    if event.tag is not None:
        raise _failed(event, f"the tag {event.tag[:50]} is not allowed. Put text in quotation marks")


def _failed(event: Any, why: str) -> TextError:
    mark = event.start_mark
    return TextError(f"Line {mark.line + 1}, column {mark.column + 1}: {why}.")
