"""JSON encoding of payloads, results and progress data, with clear errors."""

from __future__ import annotations

import dataclasses
import json
import math
from itertools import accumulate
from typing import Any

import msgspec

from jobyard.errors import PayloadNotJson, PayloadTooLarge
from jobyard.executors.python.annotations import encode_other

MAX_PAYLOAD_BYTES = 1 << 20
# Deeper values are usually mistakes, and break every tool that reads them recursively.
MAX_DEPTH = 100
ADVICE = "Pass text, finite numbers, booleans, None, lists and objects of these, not nested too deeply."
# How msgspec writes NaN and infinity: as values, and as keys of objects.
NOT_FINITE_MARKERS = (b"null", b'"nan"', b'"inf"', b'"-inf"')
_encoder = msgspec.json.Encoder(enc_hook=encode_other)
# One step up for an opening bracket, one down for a closing one, as signed bytes; all other bytes are removed.
_STEPS = bytes(1 if byte in b"[{" else 255 for byte in range(256))
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


def to_json(value: Any, what: str, max_bytes: int = MAX_PAYLOAD_BYTES) -> bytes:
    """Encode a value, or raise PayloadNotJson or PayloadTooLarge.

    >>> to_json({"a": [1, 2]}, "payload")
    b'{"a":[1,2]}'
    >>> to_json(float("nan"), "result")
    Traceback (most recent call last):
      ...
    jobyard.errors.PayloadNotJson: The result holds nan, which JSON cannot hold. ...
    """
    if value is None:
        return b"null"
    try:
        data = _encoder.encode(value)
        if b"n" in data and any(marker in data for marker in NOT_FINITE_MARKERS) and not is_finite(value):
            reject_not_finite(value, what)
    except PayloadNotJson:
        raise
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise PayloadNotJson(f"The {what} cannot be written as JSON: {text(str(error))}. {ADVICE}") from error
    if len(data) > max_bytes:
        raise PayloadTooLarge(
            f"The {what} is {len(data):,} bytes of JSON; the limit is {max_bytes:,}. "
            "Store large data elsewhere and pass a reference."
        )
    if len(data) > 2 * MAX_DEPTH and data.count(b"[") + data.count(b"{") > MAX_DEPTH and depth(data) > MAX_DEPTH:
        raise PayloadNotJson(f"The {what} is nested more than {MAX_DEPTH} levels deep. Pass a flatter value.")
    return data


def depth(data: bytes) -> int:
    """The nesting depth of a JSON document.

    >>> depth(b'{"a":[1,[2]]}'), depth(rb'"[[\\"["')
    (3, 0)
    """
    steps = memoryview(without_strings(data).translate(_STEPS, _NOT_BRACKETS)).cast("b")
    return max(accumulate(steps), default=0)


def without_strings(data: bytes) -> bytes:
    """A JSON document with the content of its strings removed. Without a loop in Python: it may have megabytes.

    >>> without_strings(rb'{"a\\"[": ["b\\\\", 1]}')
    b'{: [, 1]}'
    """
    return b"".join(data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])


def is_finite(value: Any) -> bool:
    """Whether no number in the value is NaN or infinite."""
    try:
        json.dumps(msgspec.to_builtins(value, enc_hook=encode_other), allow_nan=False)
    except (TypeError, ValueError):
        return False  # perhaps: reject_not_finite looks at each number
    return True


def reject_not_finite(value: Any, what: str) -> None:
    """Raise PayloadNotJson for NaN and infinity, which msgspec would silently write as null or text."""
    if isinstance(value, float) and not math.isfinite(value):
        raise PayloadNotJson(f"The {what} holds {value}, which JSON cannot hold. {ADVICE}")
    if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value):
        value = msgspec.to_builtins(value, enc_hook=encode_other)
    if isinstance(value, dict):
        for item in (*value, *value.values()):
            reject_not_finite(item, what)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            reject_not_finite(item, what)
    elif hasattr(value, "model_dump"):
        reject_not_finite(encode_other(value), what)


def text(value: str) -> str:
    """Text that every store can hold: a lone surrogate (from an undecodable file name, say) becomes a question mark.

    >>> text("caf\\udce9")
    'caf?'
    """
    return value.encode("utf-8", "replace").decode()
