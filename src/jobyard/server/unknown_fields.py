"""Messages for unknown fields, query parameters and values, with what is known at their place."""

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


def allowed_values(shape: Any, path: Sequence[str]) -> list[str]:
    """The values that an enumeration or a Literal at a path allows; empty for other types.

    >>> from typing import Literal
    >>> allowed_values(list[Literal["asc", "desc"] | None], ["0"])
    ['asc', 'desc']
    """
    found: list[str] = []
    for choice in _types_at(shape, path):
        if isinstance(choice, inspect.LiteralType):
            found += map(str, choice.values)
        elif isinstance(choice, inspect.EnumType):
            found += [str(member.value) for member in choice.cls]
    return found


def _names_at(shape: Any, path: Sequence[str]) -> list[str]:
    """The field names of the objects at a path of keys and indexes."""
    found = _types_at(shape, path)
    return [field.encode_name for each in found if isinstance(each, inspect.StructType) for field in each.fields]


def _types_at(shape: Any, path: Sequence[str]) -> list[inspect.Type]:
    found = list(_choices(_info(shape)))
    for part in path:
        found = [choice for each in found for inner in _inner(each, part) for choice in _choices(inner)]
    return found


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
