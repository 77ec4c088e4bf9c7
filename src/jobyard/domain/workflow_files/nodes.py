"""Parsed references and conditions of workflow files, and their text."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

# A hyphen is part of a name: there is no subtraction.
NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
_PLAIN_NAME = re.compile(NAME)


class Operator(StrEnum):
    EQUAL = "=="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    IN = "in"


class Constant(msgspec.Struct, frozen=True):
    """A literal value; text in it is never scanned for references."""

    value: Any


class Reference(msgspec.Struct, frozen=True):
    """A path from a root, such as `steps.extract.output.urls[0]`, with an optional default for a missing value."""

    root: str
    keys: tuple[str | int, ...] = ()
    default: Constant | None = None


class Exists(msgspec.Struct, frozen=True):
    reference: Reference


class Not(msgspec.Struct, frozen=True):
    operand: Expression


class AllOf(msgspec.Struct, frozen=True):
    """Operands joined by `and`."""

    operands: tuple[Expression, ...]


class AnyOf(msgspec.Struct, frozen=True):
    """Operands joined by `or`."""

    operands: tuple[Expression, ...]


class Compare(msgspec.Struct, frozen=True):
    left: Expression
    operator: Operator
    right: Expression


Expression: TypeAlias = Constant | Reference | Exists | Not | AllOf | AnyOf | Compare
Operand: TypeAlias = Constant | Reference


def as_text(expression: Expression) -> str:
    """Text that parses to the same expression.

    >>> as_text(Reference("params", ("shop name", 0, "url"), Constant("none")))
    'params["shop name"][0].url ?? "none"'
    """
    match expression:
        case Constant(value):
            return json.dumps(value, ensure_ascii=False)
        case Reference(root, keys, default):
            path = root + "".join(map(_key_text, keys))
            return path if default is None else f"{path} ?? {as_text(default)}"
        case Exists(reference):
            return f"exists({as_text(reference)})"
        case Not(operand):
            return f"not {_grouped(operand, (AllOf, AnyOf))}"
        case AllOf(operands):
            return " and ".join(_grouped(each, (AllOf, AnyOf)) for each in operands)
        case AnyOf(operands):
            return " or ".join(_grouped(each, (AnyOf,)) for each in operands)
        case Compare(left, operator, right):
            weaker = (AllOf, AnyOf, Not, Compare)
            return f"{_grouped(left, weaker)} {operator} {_grouped(right, weaker)}"


def _key_text(key: str | int) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    return f".{key}" if _PLAIN_NAME.fullmatch(key) else f"[{json.dumps(key, ensure_ascii=False)}]"


def _grouped(expression: Expression, weaker: tuple[type, ...]) -> str:
    """In parentheses only where they are needed, so that the text is nested no deeper than its source."""
    return f"({as_text(expression)})" if isinstance(expression, weaker) else as_text(expression)
