"""Parsing of queries and bodies by their types; each error has a pointer to the invalid field."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import ClientDisconnect

from jobyard.api.schemas.problems import FieldError
from jobyard.domain.job_options import JOB_OPTIONS
from jobyard.errors import BadInput, BadOption
from jobyard.server.problems import HttpError, status_of

if TYPE_CHECKING:
    from starlette.requests import Request

_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>[^`]*)`)?$", re.DOTALL)
_PART = re.compile(r"\.([^.\[\]]+)|\[([^\]]*)\]")
_DATE = re.compile(r"\d{4}-")
_FIELD = re.compile(r"(?:unknown|required) field `([^`]+)`")
# A lone surrogate: half of the pair that encodes one character beyond U+FFFF.
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F]"
_LONE_SURROGATE = re.compile(_HIGH + rb"(?!" + _LOW + rb")|(?<!" + _HIGH + rb")" + _LOW)
_SURROGATE = re.compile("[\ud800-\udfff]")
MAX_PARAMETERS = 1000


def pointer(path: str, what: str) -> str:
    """
    >>> pointer(".jobs[0].priority", "Expected `int`, got `str`")
    '/jobs/0/priority'
    >>> pointer("", "Object contains unknown field `qeue`")
    '/qeue'
    >>> pointer(".payload[...].size", "Number out of range")
    '/payload'
    """
    # msgspec writes [...] for the keys of a dict and does not say which key.
    parts = [first or second for first, second in _PART.findall(path.partition("[...]")[0])]
    named = _FIELD.search(what)
    if named:
        parts.append(named.group(1))
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def validation_error(error: msgspec.ValidationError, where: str = "body") -> HttpError:
    found = _AT.match(str(error))
    what, path = (found.group("what"), found.group("path") or "") if found else (str(error), "")
    if "matching regex" in what:  # only Name has a pattern
        what = "Expected printable characters, without line breaks or direction marks"
    at = pointer(path, what)
    if where == "query":
        at = at.strip("/")
    return HttpError(422, "bad_input", f"Invalid {where}: {what}.", errors=(FieldError(at, f"{what}."),))


def with_pointers(error: BadInput, base: str = "") -> HttpError:
    """The error of an operation, with a pointer to each invalid field; `base` points to the job inside the body."""
    found = tuple(FieldError(base + each.pointer, each.detail) for each in _field_errors(error))
    return HttpError(status_of(error), error.code, str(error), errors=found)


def _field_errors(error: BadInput) -> Iterator[FieldError]:
    if isinstance(error.__cause__, msgspec.ValidationError):
        # The payload does not match the parameters of the handler.
        for each in validation_error(error.__cause__).errors:
            yield FieldError("/payload" + each.pointer, str(error))
        return
    if isinstance(error, BadOption) and not error.option:
        return
    for each in (error, *getattr(error, "others", ())):
        option = JOB_OPTIONS.get(each.option)
        yield FieldError(f"/{option.field if option else each.option or 'payload'}", str(each))


@cache
def list_and_time_parameters(shape: type[msgspec.Struct]) -> tuple[frozenset[str], frozenset[str]]:
    """Names of the parameters that may be repeated, and of those that are times."""
    info = msgspec.inspect.type_info(shape)
    assert isinstance(info, msgspec.inspect.StructType)
    lists, times = set(), set()
    for field in info.fields:
        choices = field.type.types if isinstance(field.type, msgspec.inspect.UnionType) else (field.type,)
        if any(isinstance(choice, msgspec.inspect.ListType | msgspec.inspect.VarTupleType) for choice in choices):
            lists.add(field.encode_name)
        if any(isinstance(choice, msgspec.inspect.DateTimeType) for choice in choices):
            times.add(field.encode_name)
    return frozenset(lists), frozenset(times)


def parse_query(query_string: bytes, shape: type[msgspec.Struct] | None) -> Any:
    """Parameters of a list type may be repeated; the others may be given once."""
    params = query_parameters(query_string)
    if shape is None:
        if params:
            raise invalid_parameter(params[0][0], "Unknown parameter.")
        return None
    lists, times = list_and_time_parameters(shape)
    values: dict[str, Any] = {}
    for name, value in params:
        if name in lists:
            values.setdefault(name, []).append(value)
        elif name in values:
            raise invalid_parameter(name, "It may be given only once.")
        else:
            values[name] = value
    for name in times & set(values):
        if not _DATE.match(values[name]):  # msgspec would read a plain number as a Unix timestamp
            raise invalid_parameter(name, "Expected a time such as 2026-11-16T03:00:00Z.")
    try:
        query = msgspec.convert(values, shape, strict=False)
    except msgspec.ValidationError as error:
        raise validation_error(error, "query") from None
    for name in values:
        if getattr(query, name) is None:  # msgspec converted the text "null"
            raise invalid_parameter(name, "Expected a value, got null.")
    return query


def query_parameters(query_string: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query_string.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS)
    except UnicodeDecodeError:
        raise HttpError(422, "bad_input", "The query is not UTF-8.") from None
    except ValueError:
        raise HttpError(422, "bad_input", f"A query may have at most {MAX_PARAMETERS} parameters.") from None


def invalid_parameter(name: str, detail: str) -> HttpError:
    return HttpError(422, "bad_input", f"Invalid query: {name}: {detail}", errors=(FieldError(name, detail),))


async def parse_body(
    request: Request, decoder: msgspec.json.Decoder[Any], max_bytes: int, *, locates_bad_json: bool = False
) -> Any:
    media_type = request.headers.get("content-type")
    if media_type is not None and media_type.partition(";")[0].strip().lower() != "application/json":
        raise HttpError(415, "not_json", "Send the body as Content-Type: application/json.")
    data = await read_body(request, max_bytes)
    if media_type is None and data:
        raise HttpError(415, "not_json", "Send the body as Content-Type: application/json.")
    try:
        return decoder.decode(data or b"{}")  # a body whose fields are all optional may be omitted
    except msgspec.ValidationError as error:
        if not data:
            raise HttpError(400, "not_json", "The body is empty.") from None
        raise validation_error(error) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        invalid = invalid_json_value(data) if locates_bad_json else None
        if invalid is not None:
            detail = f"Invalid body: {invalid.detail}"
            raise HttpError(422, "bad_input", detail, errors=(invalid,)) from None
        is_lone = _LONE_SURROGATE.search(data) is not None
        reason = "it contains a lone surrogate, which is not a character" if is_lone else str(error)
        raise HttpError(400, "not_json", f"The body is not JSON: {reason}.") from None


def invalid_json_value(data: bytes) -> FieldError | None:
    """The value that makes a body invalid JSON although Python can read it: NaN, infinity or a lone surrogate.

    >>> invalid_json_value(b'{"limits": {"time_seconds": NaN}}')
    FieldError(pointer='/limits/time_seconds', detail='Expected a number, got NaN or infinity.')
    >>> invalid_json_value(b'{"args": ["a", "\\\\ud800"]}').pointer
    '/args/1'
    >>> invalid_json_value(b'{"a": 1}'), invalid_json_value(b"{")
    (None, None)
    """

    def find(value: Any, at: str) -> FieldError | None:
        if isinstance(value, dict):
            below = ((f"{at}/{name}", each) for name, each in value.items())
        elif isinstance(value, list):
            below = ((f"{at}/{number}", each) for number, each in enumerate(value))
        elif isinstance(value, float) and not math.isfinite(value):
            return FieldError(at, "Expected a number, got NaN or infinity.")
        elif isinstance(value, str) and _SURROGATE.search(value):
            return FieldError(at, "Expected text in UTF-8, without lone surrogates.")
        else:
            return None
        return next((found for where, each in below if (found := find(each, where)) is not None), None)

    try:
        return find(json.loads(data.decode("utf-8", "surrogateescape")), "")
    except (ValueError, RecursionError):
        return None


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The whole body. Raises HttpError as soon as it is known to be too large."""
    too_large = HttpError(413, "body_too_large", f"The body may have at most {max_bytes:,} bytes.")
    length = request.headers.get("content-length")
    if length is not None and length.isdigit() and int(length) > max_bytes:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > max_bytes:
            raise too_large
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunk if len(chunks) == 1 else b"".join(chunks)
