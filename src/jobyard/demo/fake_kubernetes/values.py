"""Copies, merge patches, timestamps and quantities of plain JSON values."""

from __future__ import annotations

import functools
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeVar

import msgspec

Value = TypeVar("Value")

_QUANTITY = re.compile(r"([+-]?\d+(?:\.\d*)?|[+-]?\.\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?")
_SUFFIXES: dict[str | None, Decimal] = {
    None: Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("0.001"),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}


def copy(value: Value) -> Value:
    """An independent copy, so that a caller cannot change what the server stores."""
    duplicate: Value = msgspec.json.decode(msgspec.json.encode(value))
    return duplicate


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386) and return the result.

    >>> merge_patch({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": None}, "d": [2]})
    {'a': {'c': 2}, 'd': [2]}
    """
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


_DROPPED_WHEN_EMPTY = frozenset({"labels", "annotations", "nodeSelector", "data", "hard", "limits", "requests"})


def without_empty(value: Any) -> Any:
    """Leave out what the API server does not write: null, empty lists and empty maps.

    >>> without_empty({"metadata": {"labels": {}, "name": "a"}, "spec": {"env": [], "emptyDir": {}, "x": None}})
    {'metadata': {'name': 'a'}, 'spec': {'emptyDir': {}}}
    """
    if isinstance(value, list):
        return [without_empty(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: without_empty(item)
        for key, item in value.items()
        if item is not None and item != [] and not (item == {} and key in _DROPPED_WHEN_EMPTY)
    }


def timestamp(seconds: float) -> str:
    """RFC 3339 with whole seconds.

    >>> timestamp(0)
    '1970-01-01T00:00:00Z'
    """
    return _timestamp(int(seconds))


@functools.lru_cache(maxsize=1024)
def _timestamp(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def from_timestamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def quantity(text: Any) -> Decimal:
    """Parse a Kubernetes quantity; ValueError if it is malformed.

    >>> quantity("1500m"), quantity("2Gi"), quantity("1e3")
    (Decimal('1.500'), Decimal('2147483648'), Decimal('1E+3'))
    """
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    number, suffix = match[1], match[2]
    if suffix and suffix not in _SUFFIXES:
        return Decimal(number + suffix)
    return Decimal(number) * _SUFFIXES[suffix]


def format_quantity(amount: Decimal) -> str:
    """Write an amount in the shortest exact form.

    >>> [format_quantity(quantity(text)) for text in ("10", "1500m", "2048Mi")]
    ['10', '1500m', '2Gi']
    """
    if amount != amount.to_integral_value():
        return f"{int(amount * 1000)}m"
    whole = int(amount)
    for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        unit = int(_SUFFIXES[suffix])
        if whole and whole % unit == 0:
            return f"{whole // unit}{suffix}"
    return str(whole)
