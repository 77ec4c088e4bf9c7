"""Validation errors of msgspec as field errors: a pointer to each invalid field, not only to the first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin

import msgspec
from msgspec import UnsetType

from jobyard.api.schemas.problems import FieldError
from jobyard.domain.type_words import readable
from jobyard.server.problems import HttpError
from jobyard.server.unknown_fields import allowed_values, unknown_field

_PART = re.compile(r"\.([^.\[\]]+)|\[([^\]]*)\]")
_FIELD = re.compile(r"(?:unknown|required) field `([^`]+)`")
_UNKNOWN = re.compile(r"unknown field `([^`]+)`")
_ENUM = "Invalid enum value "
MAX_DETAIL = 400
MAX_ERRORS = 20
Path: TypeAlias = tuple[str, ...]


def pointer(path: str, what: str) -> str:
    """
    >>> pointer(".jobs[0].priority", "Expected `int`, got `str`")
    '/jobs/0/priority'
    >>> pointer("", "Object contains unknown field `qeue`")
    '/qeue'
    >>> pointer(".payload[...].size", "Number out of range")
    '/payload'
    """
    named = _FIELD.search(what)
    return json_pointer([*path_parts(path), *(named.groups() if named else ())])


def path_parts(path: str) -> list[str]:
    # msgspec writes [...] for the keys of a dict and does not say which key.
    return [first or second for first, second in _PART.findall(path.partition("[...]")[0].removesuffix("`"))]


def json_pointer(parts: Iterable[str]) -> str:
    """
    >>> json_pointer(["a/b", "0"])
    '/a~1b/0'
    """
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def field_error(error: msgspec.ValidationError, base: Path = (), shape: Any = None, name: str = "field") -> FieldError:
    """`base` leads to the value that was validated. `shape`: its type, to name what is allowed there."""
    what, found, path = str(error).rpartition(" - at `$")
    if not found:
        what, path = path, ""
    what = what[:MAX_DETAIL]  # it names an unknown field, which the caller may have made as long as the body
    if "matching regex" in what:  # only Name has a pattern
        what = "Expected printable characters, without line breaks or direction marks"
    at = json_pointer(base) + pointer(path, what)
    unknown = _UNKNOWN.search(what)
    if unknown and shape is not None:
        return FieldError(at, unknown_field(name, unknown[1], shape, path_parts(path)))
    if what.startswith(_ENUM) and shape is not None and (allowed := allowed_values(shape, path_parts(path))):
        what = f"Expected one of {', '.join(allowed)}, got {what.removeprefix(_ENUM)}"
    return FieldError(at, f"{readable(what)}.")


def invalid_body(error: msgspec.ValidationError, shape: Any, found: Sequence[FieldError] = ()) -> HttpError:
    """`found`: all invalid fields, if they were looked for."""
    errors = tuple(found) or (field_error(error, shape=shape),)
    return HttpError(422, "bad_input", _sentence("body", errors[0]), errors=errors)


def invalid_query(error: msgspec.ValidationError, shape: Any) -> HttpError:
    first = field_error(error, shape=shape, name="query parameter")
    name = first.pointer.strip("/").partition("/")[0]  # a repeated parameter has no further parts for the caller
    detail = first.detail if first.detail.startswith("Unknown ") else f"Invalid query: {name}: {first.detail}"
    return HttpError(422, "bad_input", detail, errors=(FieldError(name, first.detail),))


def _sentence(where: str, error: FieldError) -> str:
    return error.detail if error.detail.startswith("Unknown ") else f"Invalid {where}: {error.detail}"


def invalid_fields(data: bytes, shape: Any) -> list[FieldError]:
    """The invalid fields of a JSON document, in its order and then the missing ones; MAX_ERRORS at most.

    msgspec stops at the first one, so the fields are decoded one by one.
    """
    found: list[FieldError] = []
    _collect(data, shape, (), found)
    return found[:MAX_ERRORS]


def _collect(data: bytes | msgspec.Raw, shape: Any, path: Path, found: list[FieldError]) -> None:
    try:
        _decoder(shape).decode(data)
    except msgspec.ValidationError as error:
        before = len(found)
        begins_with = bytes(data).lstrip()[:1]
        struct, item = _inner(shape)
        if struct is not None and begins_with == b"{":
            _collect_members(data, struct, path, found)
        elif item is not None and begins_with == b"[":
            for number, each in enumerate(_items.decode(data)):
                if len(found) < MAX_ERRORS:
                    _collect(each, item, (*path, str(number)), found)
        if len(found) == before:
            found.append(field_error(error, path, shape))


def _collect_members(
    data: bytes | msgspec.Raw, struct: type[msgspec.Struct], path: Path, found: list[FieldError]
) -> None:
    members = _members.decode(data)
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    for name, value in members.items():
        if len(found) >= MAX_ERRORS:
            return
        if name in fields:
            _collect(value, fields[name].type, (*path, name), found)
        elif struct.__struct_config__.forbid_unknown_fields:
            found.append(FieldError(json_pointer((*path, name)), unknown_field("field", name[:MAX_DETAIL], struct)))
    for name, field in fields.items():
        if field.required and name not in members:
            found.append(FieldError(json_pointer((*path, name)), f'Missing field "{name}".'))


_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items = msgspec.json.Decoder(list[msgspec.Raw])


@cache
def _decoder(shape: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(shape)


@cache
def _inner(shape: Any) -> tuple[type[msgspec.Struct] | None, Any]:
    """The struct of the type, or the type of its items, if it has one of them and no other choice.

    >>> _inner(list[int] | None)
    (None, <class 'int'>)
    >>> _inner(int | list[int])
    (None, None)
    """
    if get_origin(shape) is Annotated:
        return _inner(get_args(shape)[0])
    if get_origin(shape) in (Union, UnionType):
        choices = [each for each in get_args(shape) if each not in (NoneType, UnsetType)]
        return _inner(choices[0]) if len(choices) == 1 else (None, None)
    if get_origin(shape) in (list, tuple):
        return None, get_args(shape)[0]
    is_struct = isinstance(shape, type) and issubclass(shape, msgspec.Struct)
    return (shape, None) if is_struct and shape.__struct_config__.tag is None else (None, None)
