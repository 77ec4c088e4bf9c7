"""Parsing of queries and bodies by their types; each error has a pointer to the invalid field."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote

import msgspec
from starlette.requests import ClientDisconnect

from jobyard.api.schemas.jobs import RequestSchema
from jobyard.api.schemas.problems import FieldError
from jobyard.domain.job_options import JOB_OPTIONS
from jobyard.errors import BadInput, BadOption
from jobyard.executors.python.payload import without_strings
from jobyard.server.problems import HttpError, status_of
from jobyard.server.validation_errors import (
    MAX_DETAIL,
    field_error,
    invalid_body,
    invalid_fields,
    invalid_query,
    json_pointer,
)

if TYPE_CHECKING:
    from starlette.requests import Request

PATH_CHARACTERS = "/%:@!$&'()*+,;=~"
_DATE = re.compile(r"\d{4}-")
# A lone surrogate: half of the pair that encodes one character beyond U+FFFF.
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F]"
_LONE_SURROGATE = re.compile(_HIGH + rb"(?!" + _LOW + rb")|(?<!" + _HIGH + rb")" + _LOW)
_SURROGATE = re.compile("[\ud800-\udfff]")
# The key in the scope of the request headers by name.
RAW_HEADERS = "jobyard.headers"
MAX_PARAMETERS = 1000
# What a body may hold: decoding and encoding more of it would block the event loop for longer than 50 ms.
MAX_MEMBERS = 65_536  # objects, arrays and members of objects
MAX_VALUES = 131_072
MAX_DIGITS = 400  # a number takes time by the square of its digits
SMALL_BODY = 65_536  # a body of this size cannot hold too much
LOCATED_BODY = 16_384  # in a larger one, it takes too long to find the pointer of an invalid value
_DIGITS = bytes.maketrans(b"123456789", b"000000000")


def with_pointers(error: BadInput, base: str = "") -> HttpError:
    """The error of an operation, with a pointer to each invalid field; `base` points to the job inside the body."""
    found = tuple(FieldError(base + each.pointer, each.detail) for each in _field_errors(error))
    return HttpError(status_of(error), error.code, str(error), errors=found)


def _field_errors(error: BadInput) -> Iterator[FieldError]:
    if isinstance(error.__cause__, msgspec.ValidationError):
        # The payload does not match the parameters of the handler.
        yield FieldError(field_error(error.__cause__, ("payload",)).pointer, str(error))
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
            name = params[0][0]
            detail = f"Unknown query parameter {name[:MAX_DETAIL]}."
            raise HttpError(422, "bad_input", detail, errors=(FieldError(name, detail),))
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
        raise invalid_query(error, shape) from None
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


def raw_path(request: Request) -> str:
    """The path as it was sent, still percent-encoded."""
    return quote(request.scope.get("raw_path") or b"", safe=PATH_CHARACTERS)


def raw_header(request: Request, name: bytes) -> bytes | None:
    """A header, from one dict per request instead of Starlette's Headers: the hot path looks up several."""
    headers: dict[bytes, bytes] | None = request.scope.get(RAW_HEADERS)
    if headers is None:
        headers = request.scope[RAW_HEADERS] = dict(request.scope["headers"])
    return headers.get(name)


class _NoFields(RequestSchema, frozen=True):
    """The body of a route that takes none: empty, or an object without fields."""


_NO_FIELDS = msgspec.json.Decoder(_NoFields)


async def require_no_fields(request: Request, max_bytes: int) -> None:
    """Reject a body with fields, which the caller would expect to have an effect."""
    data = await read_body(request, max_bytes)
    if data.strip():
        decode_body(data, _NO_FIELDS)


async def parse_body(
    request: Request, decoder: msgspec.json.Decoder[Any], max_bytes: int, *, locates_bad_json: bool = False
) -> Any:
    media_type = raw_header(request, b"content-type")
    if media_type is not None and media_type.partition(b";")[0].strip().lower() != b"application/json":
        raise HttpError(415, "not_json", "Send the body as Content-Type: application/json.")
    if (raw_header(request, b"content-encoding") or b"identity").lower() != b"identity":
        raise HttpError(415, "encoded_body", "Send the body as it is, without a Content-Encoding.")
    data = await read_body(request, max_bytes)
    if media_type is None and data:
        raise HttpError(415, "not_json", "Send the body as Content-Type: application/json.")
    body = decode_body(data, decoder, locates_bad_json=locates_bad_json)
    if len(data) > SMALL_BODY:
        await asyncio.sleep(0)  # a turn for other requests between decoding and what the handler does
    return body


def decode_body(data: bytes, decoder: msgspec.json.Decoder[Any], *, locates_bad_json: bool = False) -> Any:
    if len(data) > SMALL_BODY:
        require_few_values(data)
    try:
        return decoder.decode(data or b"{}")  # a body whose fields are all optional may be omitted
    except msgspec.ValidationError as error:
        if not data:
            raise HttpError(400, "not_json", "The body is empty.") from None
        found = invalid_fields(data, decoder.type) if len(data) <= LOCATED_BODY else ()
        raise invalid_body(error, decoder.type, found) from None
    except RecursionError:
        raise HttpError(422, "bad_input", "Invalid body: it is nested too deeply. Send a flatter value.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        invalid = invalid_json_value(data) if locates_bad_json and len(data) <= LOCATED_BODY else None
        if invalid is not None:
            detail = f"Invalid body: {invalid.detail}"
            raise HttpError(422, "bad_input", detail, errors=(invalid,)) from None
        # Near the end of the body, msgspec takes half of a pair for a truncated one.
        is_lone = "surrogate" in str(error) or _LONE_SURROGATE.search(data[-20:]) is not None
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

    path: list[str] = []  # joined only once, for the invalid value: a path per value would be quadratic

    def find(value: Any) -> str | None:
        if isinstance(value, dict | list):
            for name, each in value.items() if isinstance(value, dict) else enumerate(value):
                path.append(str(name))
                if (found := find(each)) is not None:
                    return found
                path.pop()
        elif isinstance(value, float) and not math.isfinite(value):
            return "Expected a number, got NaN or infinity."
        elif isinstance(value, str) and _SURROGATE.search(value):
            return "Expected text in UTF-8, without lone surrogates."
        return None

    try:
        found = find(json.loads(data.decode("utf-8", "surrogateescape")))
    except (ValueError, RecursionError):
        return None
    return None if found is None else FieldError(json_pointer(path), found)


def require_few_values(data: bytes) -> None:
    """Raise HttpError for a body whose values take too long to decode, although its size is allowed."""
    # Cheap counts first: a string is a value or the name of a member.
    unescaped = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if unescaped.count(b'"') <= 2 * (MAX_MEMBERS + MAX_VALUES):
        bare = without_strings(unescaped)
        members = bare.count(b"[") + bare.count(b"{") + bare.count(b":")
        if b"0" * (MAX_DIGITS + 1) in bare.translate(_DIGITS):
            raise HttpError(422, "bad_input", f"Invalid body: a number may have at most {MAX_DIGITS} digits.")
        if members <= MAX_MEMBERS and bare.count(b",") < MAX_VALUES:
            return
    detail = f"The body may have at most {MAX_VALUES:,} values, and {MAX_MEMBERS:,} objects, arrays and members."
    raise HttpError(413, "body_too_large", detail)


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The whole body. Raises HttpError as soon as it is known to be too large."""
    too_large = HttpError(413, "body_too_large", f"The body may have at most {max_bytes:,} bytes.")
    length = raw_header(request, b"content-length")
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
