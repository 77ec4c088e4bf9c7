"""Params of a workflow from the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from jobyard.errors import BadInput, PayloadNotJson


def read_params(pairs: Iterable[str], file: str | None, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The params of a file, and then of NAME=VALUE pairs; `schema` says which are text."""
    found = {} if file is None else _from_file(file)
    properties = schema.get("properties", {})
    given: set[str] = set()
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"Cannot read the param {pair!a}. Write -p name=value.")
        if name in given:
            raise click.UsageError(f"The param {name} is given more than once.")
        given.add(name)
        found[name] = param_value(text, properties.get(name, {}).get("type"))
    return found


def param_value(text: str, declared: str | None) -> Any:
    """
    >>> param_value("007", "string"), param_value("7", "integer"), param_value("[1]", None), param_value("a", None)
    ('007', 7, [1], 'a')
    """
    if declared == "string":
        return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _from_file(name: str) -> dict[str, Any]:
    try:
        text = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise BadInput(f"Cannot read {name}: {error.strerror}.") from error
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PayloadNotJson(f"Cannot read params from {name}: it is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise BadInput(f'Cannot read params from {name}: it is not an object such as {{"platform": "ably"}}.')
    return value
