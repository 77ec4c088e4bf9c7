"""Values as JSON: times as UTC text, payloads unchanged."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from jobyard.api.convert import IDEMPOTENCY
from jobyard.domain.instant import FOREVER, rfc3339
from jobyard.domain.job import Job
from jobyard.domain.options import HIDDEN
from jobyard.domain.retry import Delays, Exponential, Fixed
from jobyard.domain.tags import TRACE

# Valid in JSON strings, but they control a terminal.
UNESCAPED = re.compile(rf"(?!\n)[{HIDDEN}]")


def as_json(value: Any, indent: int = 2) -> str:
    """
    >>> as_json({"a": "\\x1b\\x9b\\u202e"}, indent=0)
    '{"a": "\\\\u001b\\\\u009b\\\\u202e"}'
    """
    data = msgspec.json.encode(document(value))
    with contextlib.suppress(RecursionError):  # nested too deeply to indent; still valid JSON
        data = msgspec.json.format(data, indent=indent)
    return UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", data.decode())


def document(value: Any) -> Any:
    """
    >>> from jobyard.domain.job import LogLine
    >>> document([LogLine(message="hello", at=1000)])
    [{'message': 'hello', 'level': 'info', 'at': '1970-01-01T00:00:01.000Z'}]
    """
    match value:
        case msgspec.Raw():
            return value  # not decoded: that could fail on deep nesting
        case Fixed() | Exponential() | Delays():
            return msgspec.to_builtins(value)
        case Job():
            return _fields(without_internals(value))
        case msgspec.Struct():
            return _fields(value)
        case Mapping():
            return {key: document(item) for key, item in value.items()}
        case list() | tuple():
            return [document(item) for item in value]
        case _:
            return value


def without_internals(job: Job) -> Job:
    """The job without what only the server and tracing read: its trace tag, and the key of its Idempotency-Key."""
    is_internal = job.unique_key is not None and job.unique_key.startswith(IDEMPOTENCY)
    tags = tuple(tag for tag in job.tags if not tag.startswith(TRACE))
    if not is_internal and len(tags) == len(job.tags):
        return job
    return msgspec.structs.replace(job, unique_key=None if is_internal else job.unique_key, tags=tags)


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    return {key: _field(key, item) for key, name in names if (item := getattr(value, name)) is not msgspec.UNSET}


def _field(name: str, value: Any) -> Any:
    if (name == "at" or name.endswith("_at")) and not isinstance(value, str):  # from a server it is text already
        return None if value in (None, 0, FOREVER) else rfc3339(value)
    return document(value)
