"""Messages for unknown fields and query parameters, with the known name that is most similar."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from msgspec import inspect

from jobyard.domain.job_options import JOB_OPTIONS
from jobyard.errors import did_you_mean
from jobyard.operations.schedule_options import SCHEDULE_OPTIONS

# The names of options in Python; their fields here carry the unit.
_FIELDS = {option.name: option.field for option in (*JOB_OPTIONS.values(), *SCHEDULE_OPTIONS.values())}


def unknown_field(what: str, name: str, shape: Any, path: Sequence[str] = ()) -> str:
    """
    >>> from msgspec import Struct
    >>> class Job(Struct):
    ...     delay_seconds: float = 0
    >>> unknown_field("field", "delay", list[Job], ["0"])
    'Unknown field delay. Did you mean "delay_seconds"?'
    """
    known = _names_at(shape, path)
    field = _FIELDS.get(name)
    return f"Unknown {what} {name}." + did_you_mean(field if field in known else name, known)


def _names_at(shape: Any, path: Sequence[str]) -> list[str]:
    """The field names of the objects at a path of keys and indexes."""
    found = [_info(shape)]
    for part in path:
        found = [inner for each in found for choice in _choices(each) for inner in _inner(choice, part)]
    return [
        field.encode_name
        for each in found
        for choice in _choices(each)
        if isinstance(choice, inspect.StructType)
        for field in choice.fields
    ]


@cache
def _info(shape: Any) -> inspect.Type:
    return inspect.type_info(shape)


def _choices(info: inspect.Type) -> tuple[inspect.Type, ...]:
    return info.types if isinstance(info, inspect.UnionType) else (info,)


def _inner(info: inspect.Type, part: str) -> Iterator[inspect.Type]:
    if isinstance(info, inspect.StructType):
        yield from (field.type for field in info.fields if field.encode_name == part)
    elif isinstance(info, inspect.CollectionType | inspect.VarTupleType):
        yield info.item_type
