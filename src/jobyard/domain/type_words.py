"""The types in messages of msgspec, in the words of JSON."""

from __future__ import annotations

import re

_WORDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "a boolean",
    "null": "null",
    "array": "an array",
    "object": "an object",
}
_MISSING = re.compile(r"^Object missing required field `([^`]*)`")
_UNKNOWN = re.compile(r"^Object contains unknown field `([^`]*)`")
_AT = re.compile(r"(.*) - at `\$\.?([^`]*)`(.*)", re.DOTALL)
_TYPES = re.compile(rf"(?:(?<=Expected )|(?<=, got ))`((?:{'|'.join(_WORDS)})(?: \| (?:{'|'.join(_WORDS)}))*)`")


def readable(what: str) -> str:
    """
    >>> readable("Expected `int | null`, got `str`")
    'Expected an integer or null, got a string'
    >>> readable("Object contains unknown field `int`")
    'Object contains unknown field `int`'
    >>> readable("Object missing required field `to`")
    'Missing field "to"'
    """
    what = _MISSING.sub(r'Missing field "\1"', what)
    return _TYPES.sub(lambda found: " or ".join(_WORDS[each] for each in found[1].split(" | ")), what)


def mismatch(error: str) -> str:
    """What in a payload does not fit a handler, in the words of Python.

    >>> mismatch("Expected `str`, got `int` - at `$.to`")
    'to: expected str, got int'
    >>> mismatch("Object missing required field `to`")
    'missing parameter "to"'
    >>> mismatch("Object contains unknown field `too`")
    'unknown parameter "too"'
    >>> mismatch("Object missing required field `id` - at `$.order.items[0]`")
    'order.items[0]: missing field "id"'
    >>> mismatch("Field required - at `$.order.id` (and 2 more)")
    'order.id: Field required (and 2 more)'
    """
    found = _AT.fullmatch(error)
    what, path, more = found.groups() if found else (error, "", "")
    if _MISSING.match(what):
        what = _MISSING.sub(r'missing field "\1"' if path else r'missing parameter "\1"', what)
    elif what.startswith("Expected "):
        what = "expected " + what.removeprefix("Expected ").replace("`", "")
    elif unknown := _UNKNOWN.match(what):
        what = f'unknown {"field" if path else "parameter"} "{unknown[1]}"'
    return f"{path}: {what}{more}" if path else what + more
