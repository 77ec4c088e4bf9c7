"""Values of annotated types as JSON: decoders for what msgspec knows, and for pydantic's types when it is in use."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import PurePath
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import inspect

from jobyard.errors import BadInput

# Written as text and read back by their constructors.
TEXT_TYPES = (PurePath, IPv4Address, IPv4Network, IPv6Address, IPv6Network)
# Types whose values are lists or objects in JSON, so that they cannot be keys.
NO_KEYS = (
    inspect.CollectionType,
    inspect.TupleType,
    inspect.DictType,
    inspect.StructType,
    inspect.DataclassType,
    inspect.NamedTupleType,
    inspect.TypedDictType,
)
JSON_TYPES = (dict, list, str, int, float, bool, type(None))
Decode = Callable[[bytes], Any]


CARRIED = (
    "text, numbers, booleans, lists, dicts, dataclasses, TypedDicts, enums, datetime, UUID, Decimal, pydantic models "
    "or msgspec structs"
)


class UnserializableType(Exception):
    """A type that cannot be written as JSON and read back; the message says why."""

    def __init__(self, why: str, remedy: str = f"Use an id or a path, and load the rest from it; or {CARRIED}") -> None:
        super().__init__(why)
        self.remedy = remedy


def decoder_of(hint: Any) -> Decode:
    """A decoder of JSON into this type. Raises UnserializableType."""
    if not is_carried_by_pydantic(hint):
        return msgspec.json.Decoder(hint, dec_hook=decode_other).decode
    return pydantic_decoder(hint)


def is_carried_by_pydantic(hint: Any) -> bool:
    """Whether the type needs pydantic. Raises UnserializableType for a type that nothing can carry."""
    if any(is_pydantic_type(part) for part in parts_of(hint)):
        return True
    try:
        unknown = unknown_class(inspect.type_info(hint))
        if unknown is None:
            return False
        problem = f"{unknown.__qualname__} has no form in JSON"
        if not is_known_to_pydantic(unknown):
            raise UnserializableType(problem)
    except TypeError as error:
        problem = str(error).partition(" - type ")[0]
    except NameError as error:
        remedy = f"Define or import {error.name} at the top level of the module, not only for type checkers"
        raise UnserializableType(f"the type of one of its fields, {error.name}, cannot be found", remedy) from error
    # Types that pydantic knows and msgspec does not: unions of text-like types, deque, URLs, …
    if find_spec("pydantic") is None:
        raise UnserializableType(problem)
    try:
        pydantic_decoder(hint)
    except UnserializableType as error:
        raise UnserializableType(problem) from error
    return True


def is_known_to_pydantic(cls: type) -> bool:
    return cls.__module__ == "collections" or cls.__module__.startswith("pydantic")


def pydantic_decoder(hint: Any) -> Decode:
    import pydantic  # noqa: PLC0415  an optional package, slow to load

    try:
        adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(hint)
        schema = adapter.json_schema()
    except (pydantic.errors.PydanticUserError, TypeError) as error:
        raise UnserializableType(str(error).partition("\n")[0].rstrip(".")) from error
    if is_secret(schema):
        why = "it has a secret, which pydantic writes as asterisks"
        raise UnserializableType(why, "Pass the secret with task.options(private=…), and read it from ctx.private")

    def decode(data: bytes) -> Any:
        try:
            return adapter.validate_json(data)
        except pydantic.ValidationError as error:
            raise BadInput(describe(error)) from error

    return decode


def describe(error: Any) -> str:
    """The first problem of a pydantic ValidationError, as msgspec words its own: what, and where."""
    first, *others = error.errors(include_url=False, include_context=False)
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    more = f" (and {len(others)} more)" if others else ""
    return f"{first['msg']} - at `${where}`{more}"


def is_secret(schema: Any) -> bool:
    if isinstance(schema, dict):
        return schema.get("writeOnly") is True or any(is_secret(each) for each in schema.values())
    return isinstance(schema, list) and any(is_secret(each) for each in schema)


def is_pydantic_type(hint: Any) -> bool:
    """Whether it is a model or a dataclass of pydantic, or annotated with one of its constraints."""
    if "pydantic" not in sys.modules:
        return False
    if isinstance(hint, type):
        if issubclass(hint, msgspec.Struct):
            return False
        return hasattr(hint, "__pydantic_core_schema__") or hasattr(hint, "__get_pydantic_core_schema__")
    return any(type(each).__module__.startswith("pydantic") for each in getattr(hint, "__metadata__", ()))


def parts_of(hint: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """The type, its type arguments, and the types of the fields of its dataclasses and structs."""
    seen = set() if seen is None else seen
    if id(hint) in seen:
        return
    seen.add(id(hint))
    yield hint
    inner: list[Any] = list(get_args(hint))
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, msgspec.Struct)):
        inner += field_types(hint)
    for each in inner:
        yield from parts_of(each, seen)


def field_types(hint: type) -> list[Any]:
    try:
        return list(get_type_hints(hint, include_extras=True).values())
    except (NameError, TypeError):
        return []


def unknown_class(info: Any, seen: set[int] | None = None) -> type | None:
    """A class in the type that msgspec neither knows nor is told how to decode."""
    seen = set() if seen is None else seen
    if id(info) in seen:
        return None
    seen.add(id(info))
    if isinstance(info, inspect.CustomType):
        return None if is_text_type(info.cls) or accepts_json(info.cls) else info.cls
    if isinstance(info, inspect.DictType) and isinstance(info.key_type, NO_KEYS):
        raise UnserializableType("JSON has only text and numbers as keys", "Use a list of pairs")
    inner: list[Any] = []
    if isinstance(info, msgspec.Struct):
        for value in (getattr(info, name) for name in info.__struct_fields__):
            inner += value if isinstance(value, tuple) else [value]
    for each in inner:
        if isinstance(each, inspect.Type | inspect.Field):
            found = unknown_class(each, seen)
            if found is not None:
                return found
    return None


def accepts_json(cls: Any) -> bool:
    """Whether values that JSON decodes to are instances: of `object`, or of Iterable."""
    try:
        return any(issubclass(each, cls) for each in JSON_TYPES)
    except TypeError:
        return False


def is_text_type(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, TEXT_TYPES)


def decode_other(hint: Any, value: Any) -> Any:
    """The hook of msgspec for types that it does not know."""
    if is_text_type(hint):
        if not isinstance(value, str):
            raise ValueError(f"Expected text for {hint.__name__}, got {type(value).__name__}")
        return hint(value)
    return value  # msgspec checks that it is an instance


def encode_other(value: Any) -> Any:
    """The hook of msgspec for values that it does not know."""
    if isinstance(value, TEXT_TYPES):
        return str(value)
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None:
        if isinstance(value, pydantic.BaseModel):
            return value.model_dump(mode="json", by_alias=True)
        if is_known_to_pydantic(type(value)):
            return sys.modules["pydantic_core"].to_jsonable_python(value)
    if isinstance(value, tuple | frozenset):  # encoded as values, so this is a key
        raise TypeError("Only dicts with str-like or number-like keys are supported")
    raise TypeError(f"Encoding objects of type {type(value).__qualname__} is unsupported")
