"""From a request to what a handler wants: query and body by their types, each refusal with a pointer."""

from __future__ import annotations

import json
import math
import re
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import ClientDisconnect

from jobyard.api.schemas.problems import FieldError
from jobyard.server.problems import HttpError

if TYPE_CHECKING:
    from starlette.requests import Request

_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>[^`]*)`)?$", re.DOTALL)
_PART = re.compile(r"\.([^.\[\]]+)|\[([^\]]*)\]")
_DATE = re.compile(r"\d{4}-")
_FIELD = re.compile(r"(?:unknown|required) field `([^`]+)`")
# Half of a pair that stands for one character beyond the first 65,536; alone it stands for nothing.
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F]"
_HALF = re.compile(_HIGH + rb"(?!" + _LOW + rb")|(?<!" + _HIGH + rb")" + _LOW)
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
    # Of an object of any names it is not told which one.
    parts = [first or second for first, second in _PART.findall(path.partition("[...]")[0])]
    named = _FIELD.search(what)
    if named:
        parts.append(named.group(1))
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def refusal(error: msgspec.ValidationError, where: str = "body") -> HttpError:
    found = _AT.match(str(error))
    what, path = (found.group("what"), found.group("path") or "") if found else (str(error), "")
    if "matching regex" in what:  # only names have one
        what = "Expected printable characters, without any that break a line or turn its direction"
    at = pointer(path, what)
    if where == "query":
        at = at.strip("/")
    return HttpError(422, "bad_input", f"The {where} does not fit: {what}.", errors=(FieldError(at, f"{what}."),))


@cache
def kinds_of(shape: type[msgspec.Struct]) -> tuple[frozenset[str], frozenset[str]]:
    """The parameters that may be given several times, and those that are times."""
    told = msgspec.inspect.type_info(shape)
    assert isinstance(told, msgspec.inspect.StructType)
    lists, times = set(), set()
    for field in told.fields:
        choices = field.type.types if isinstance(field.type, msgspec.inspect.UnionType) else (field.type,)
        if any(isinstance(choice, msgspec.inspect.ListType | msgspec.inspect.VarTupleType) for choice in choices):
            lists.add(field.encode_name)
        if any(isinstance(choice, msgspec.inspect.DateTimeType) for choice in choices):
            times.add(field.encode_name)
    return frozenset(lists), frozenset(times)


def query_of(sent: bytes, shape: type[msgspec.Struct] | None) -> Any:
    """A parameter that may be given several times is a list in the shape; others may be given once."""
    params = parameters_of(sent)
    if shape is None:
        if params:
            raise wrong(params[0][0], "There is no such parameter here.")
        return None
    lists, times = kinds_of(shape)
    values: dict[str, Any] = {}
    for name, value in params:
        if name in lists:
            values.setdefault(name, []).append(value)
        elif name in values:
            raise wrong(name, "It may be given once.")
        else:
            values[name] = value
    for name in times & set(values):
        if not _DATE.match(values[name]):  # a plain number would be read as seconds since 1970
            raise wrong(name, "A time is written like 2026-11-16T03:00:00Z.")
    try:
        query = msgspec.convert(values, shape, strict=False)
    except msgspec.ValidationError as error:
        raise refusal(error, "query") from None
    for name in values:
        if getattr(query, name) is None:  # it read the word "null"
            raise wrong(name, "It has no value.")
    return query


def parameters_of(sent: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(sent.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS)
    except UnicodeDecodeError:
        raise HttpError(422, "bad_input", "The query is not UTF-8.") from None
    except ValueError:
        raise HttpError(422, "bad_input", f"A query has at most {MAX_PARAMETERS} parameters.") from None


def wrong(name: str, why: str) -> HttpError:
    return HttpError(422, "bad_input", f"The query does not fit: {name}: {why}", errors=(FieldError(name, why),))


async def body_of(
    request: Request, decoder: msgspec.json.Decoder[Any], most: int, *, names_fields: bool = False
) -> Any:
    kind = request.headers.get("content-type")
    if kind is not None and kind.partition(";")[0].strip().lower() != "application/json":
        raise HttpError(415, "not_json", "Send the body as Content-Type: application/json.")
    data = await read_body(request, most)
    if kind is None and data:
        raise HttpError(415, "not_json", "Send the body as Content-Type: application/json.")
    try:
        return decoder.decode(data or b"{}")  # nothing to say: a body whose fields are all optional may be left out
    except msgspec.ValidationError as error:
        if not data:
            raise HttpError(400, "not_json", "The body is empty.") from None
        raise refusal(error) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        unfit = unfit_field(data) if names_fields else None
        if unfit is not None:
            says = f"The body does not fit: {unfit.detail}"
            raise HttpError(422, "bad_input", says, errors=(unfit,)) from None
        why = "it holds half of a surrogate pair, which is no character" if _HALF.search(data) else str(error)
        raise HttpError(400, "not_json", f"The body is not JSON: {why}.") from None


def unfit_field(data: bytes) -> FieldError | None:
    """The field that keeps from being JSON what else would be: NaN, infinity, or text that is none.

    >>> unfit_field(b'{"limits": {"time_seconds": NaN}}')
    FieldError(pointer='/limits/time_seconds', detail='Expected a number, got NaN or infinity.')
    >>> unfit_field(b'{"args": ["a", "\\\\ud800"]}').pointer, unfit_field(b'{"a": 1}'), unfit_field(b"{")
    ('/args/1', None, None)
    """

    def look(value: Any, at: str) -> FieldError | None:
        if isinstance(value, dict):
            below = ((f"{at}/{name}", each) for name, each in value.items())
        elif isinstance(value, list):
            below = ((f"{at}/{number}", each) for number, each in enumerate(value))
        elif isinstance(value, float) and not math.isfinite(value):
            return FieldError(at, "Expected a number, got NaN or infinity.")
        elif isinstance(value, str) and _SURROGATE.search(value):
            return FieldError(at, "Expected text in UTF-8, without half of a surrogate pair.")
        else:
            return None
        return next((found for where, each in below if (found := look(each, where)) is not None), None)

    try:
        return look(json.loads(data.decode("utf-8", "surrogateescape")), "")
    except (ValueError, RecursionError):
        return None


async def read_body(request: Request, most: int) -> bytes:
    """All of it, but no more than is allowed; refused as early as it can be told."""
    too_large = HttpError(413, "body_too_large", f"A request may carry {most:,} bytes.")
    told = request.headers.get("content-length")
    if told is not None and told.isdigit() and int(told) > most:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > most:
            raise too_large
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunk if len(chunks) == 1 else b"".join(chunks)
