"""Evaluation of references and conditions: strict types, no coercion, only JSON objects and lists are entered.

Every function returns a value or raises ExpressionError, whatever the values are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from jobyard.domain.options import shown
from jobyard.domain.workflow_files.nodes import (
    AllOf,
    AnyOf,
    Compare,
    Constant,
    Exists,
    Expression,
    Not,
    Operand,
    Operator,
    Reference,
    as_text,
)
from jobyard.errors import ExpressionError

MISSING: Any = object()


class ReferenceScope(msgspec.Struct, frozen=True):
    """The values that references can reach: `roots`, and the output and status of each step in `steps`."""

    roots: Mapping[str, Any]
    steps: Mapping[str, Mapping[str, Any]]


def evaluate_condition(expression: Expression, scope: ReferenceScope) -> bool:
    """The value of a `when`, which must be true or false."""
    return _boolean(expression, scope)


def evaluate_operand(operand: Operand, scope: ReferenceScope) -> Any:
    """The value itself, not a copy; text in it is not scanned again."""
    if isinstance(operand, Constant):
        return operand.value
    value = _lookup(operand, scope)
    if value is not MISSING:
        return value
    if operand.default is not None:
        return operand.default.value
    raise ExpressionError(_why_missing(operand, scope))


def _lookup(reference: Reference, scope: ReferenceScope) -> Any:
    value: Any = scope.steps if reference.root == "steps" else scope.roots.get(reference.root, MISSING)
    keys = reference.keys
    if reference.root == "steps":
        # The two keys after `steps` are ours, and the values behind them come from handlers.
        if len(keys) < 2 or not isinstance(keys[0], str) or not isinstance(keys[1], str):
            return MISSING
        value = scope.steps.get(keys[0], {}).get(keys[1], MISSING)
        keys = keys[2:]
    for key in keys:
        value = _member(value, key)
        if value is MISSING:
            return MISSING
    return value


def _member(value: Any, key: str | int) -> Any:
    if isinstance(value, dict) and isinstance(key, str):
        return dict.get(value, key, MISSING)
    if isinstance(value, list) and isinstance(key, int) and key < len(value):
        return value[key]
    return MISSING


def _why_missing(reference: Reference, scope: ReferenceScope) -> str:
    """Names the first part of the path that is not there."""
    first = 2 if reference.root == "steps" else 0
    parts = (Reference(reference.root, reference.keys[:count]) for count in range(first, len(reference.keys)))
    part = next((part for part in parts if _lookup(part, scope) is MISSING), Reference(reference.root, reference.keys))
    return f"{as_text(part)} is missing{_why(part, scope)}. Give it a default with ?? if that is expected."


def _why(part: Reference, scope: ReferenceScope) -> str:
    if part.root == "steps" and len(part.keys) == 2:
        status = scope.steps.get(str(part.keys[0]), {}).get("status", "unknown")
        return f": step {part.keys[0]} is {status}"
    above = _lookup(Reference(part.root, part.keys[:-1]), scope) if part.keys else MISSING
    if above is MISSING or isinstance(above, dict | list):
        return ""
    return f": {as_text(Reference(part.root, part.keys[:-1]))} is {type_name(above)}"


def _boolean(expression: Expression, scope: ReferenceScope) -> bool:
    match expression:
        case AllOf(operands):
            return all(_boolean(operand, scope) for operand in operands)
        case AnyOf(operands):
            return any(_boolean(operand, scope) for operand in operands)
        case Not(operand):
            return not _boolean(operand, scope)
        case Exists(reference):
            return _lookup(reference, scope) is not MISSING
        case Compare(left, operator, right):
            return _compare(expression, _value(left, scope), operator, _value(right, scope))
        case _:
            value = evaluate_operand(expression, scope)
            if not isinstance(value, bool):
                raise ExpressionError(f"{as_text(expression)} must be true or false, not {shown_value(value)}.")
            return value


def _value(expression: Expression, scope: ReferenceScope) -> Any:
    return evaluate_operand(expression, scope) if isinstance(expression, Operand) else _boolean(expression, scope)


def _compare(expression: Compare, left: Any, operator: Operator, right: Any) -> bool:
    match operator:
        case Operator.EQUAL:
            return equal(left, right)
        case Operator.NOT_EQUAL:
            return not equal(left, right)
        case Operator.IN:
            return _contains(expression, left, right)
    if not (_are_numbers(left, right) or (isinstance(left, str) and isinstance(right, str))):
        raise ExpressionError(
            f"Cannot compare in {as_text(expression)}: {shown_value(left)} and {shown_value(right)} "
            "are not two numbers or two texts."
        )
    match operator:
        case Operator.LESS:
            return bool(left < right)
        case Operator.LESS_OR_EQUAL:
            return bool(left <= right)
        case Operator.GREATER:
            return bool(left > right)
        case Operator.GREATER_OR_EQUAL:
            return bool(left >= right)


def _contains(expression: Compare, part: Any, whole: Any) -> bool:
    if isinstance(whole, list):
        return any(equal(part, each) for each in whole)
    if isinstance(whole, dict | str) and isinstance(part, str):
        return part in whole
    raise ExpressionError(
        f"Cannot look up in {as_text(expression)}: {shown_value(part)} in {shown_value(whole)} "
        "is not a value in a list, a text in a text, or a key in an object."
    )


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def equal(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal: 1 and 1.0 are, 1 and true are not, at any depth.

    >>> equal([1, {"a": 2.0}], [1.0, {"a": 2}]), equal([1], [True]), equal("1", 1)
    (True, False, False)
    """
    pending = [(left, right)]  # a stack, because values may be nested deeper than Python can recurse
    while pending:
        left, right = pending.pop()
        if isinstance(left, dict):
            if not isinstance(right, dict) or left.keys() != right.keys():
                return False
            pending += [(left[key], right[key]) for key in left]
        elif isinstance(left, list):
            if not isinstance(right, list) or len(left) != len(right):
                return False
            pending += zip(left, right, strict=True)
        elif _are_numbers(left):
            if not _are_numbers(right) or left != right:
                return False
        elif isinstance(left, str):
            if not isinstance(right, str) or left != right:
                return False
        elif left is not right:  # null, true, false, and whatever is not JSON
            return False
    return True


def number_text(value: int | float) -> str:
    """As JSON writes it. Raises ExpressionError for a number that JSON cannot hold."""
    if isinstance(value, int) and abs(value) < 1 << 64:
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    raise ExpressionError(f"Cannot write {shown(value)} as text.")


def type_name(value: Any) -> str:
    """
    >>> type_name(None), type_name({}), type_name(True), type_name(1.5)
    ('null', 'an object', 'true or false', 'a number')
    """
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), "a value of no JSON type")


def shown_value(value: Any) -> str:
    """A value for an error message: short ones as JSON, others by their type, because they may be long or secret."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return shown(value) if isinstance(value, int | float) else type_name(value)
