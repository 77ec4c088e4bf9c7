"""Search in payloads by path and value: `user.emails.0:ann@example.com`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

# Text that JSON writers may escape (quotes, slashes, letters beyond ASCII) cannot be looked for in the stored bytes.
_PLAIN = re.compile(r"[A-Za-z0-9_.@ -]+")
_decode = msgspec.json.Decoder().decode


def split_condition(condition: str) -> tuple[list[str], str]:
    """
    >>> split_condition("user.id:42"), split_condition("url:http://a")
    ((['user', 'id'], '42'), (['url'], 'http://a'))
    """
    path, _, value = condition.partition(":")
    return path.split("."), value


def needle_of(condition: str) -> bytes:
    """The longest part of the value, or of the path, that stands in the JSON text as it is, in lower case.

    >>> needle_of("user.name:Zoë Miller"), needle_of('a.title:"')
    (b' miller', b'title')
    """
    path, value = split_condition(condition)
    parts = _PLAIN.findall(value) if value not in ("", "null") else []
    parts = parts or [part for name in path if not name.isdigit() for part in _PLAIN.findall(name)]
    return max(parts, key=len, default="").lower().encode()


def has_values(payload: bytes, conditions: Iterable[str]) -> bool:
    """Whether the JSON document has all these values at their paths. Strings and other scalars compare as text.

    >>> has_values(b'{"user": {"id": 42, "on": true}, "a": [{"b": "x"}]}', ["user.id:42", "user.on:true", "a.0.b:x"])
    True
    >>> has_values(b'{"user": {"id": 42}}', ["user.id:4"]), has_values(b"[1]", ["a:1"])
    (False, False)
    """
    try:
        document = _decode(payload)
    except ValueError:
        return False
    return all(_has_value(document, *split_condition(condition)) for condition in conditions)


def _has_value(document: Any, path: list[str], value: str) -> bool:
    found = document
    for name in path:
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isascii() and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        else:
            return False
    if isinstance(found, str):
        return found == value
    return not isinstance(found, dict | list) and msgspec.json.encode(found).decode() == value
